"""Creates the demo's data: tables, catalogue, an account with credit, its owner and key, and an account of sample data.

Every step may be repeated.
"""

from decimal import Decimal
from pathlib import Path

from django.contrib.auth.hashers import make_password
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from accounts import keys
from accounts.models import Account, ApiKey, Membership, User
from billing.accounts import OPENING_REFERENCE, open_account
from billing.ledger import credits as ledger
from catalogue import loader

from . import sample_data
from .credentials import EMAIL, Credentials

CATALOGUE = Path(__file__).with_name("catalogue.yaml")
NAME = "demo"  # of the account and of its key
CREDIT = Decimal(100)


def prepare(credentials: Credentials) -> Account | None:
    """Adds what the demo lacks to an empty or an older database; existing data stays.

    Returns the account of the sample data, if there is one.
    """
    # Django's `migrate` checks permissions and content types even if there is nothing to migrate, so check that first.
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)
    loader.seed([*loader.SHIPPED, CATALOGUE])
    with transaction.atomic():
        account = Account.objects.filter(name=NAME).first() or open_account(NAME)
        if account.currency == "EUR":
            ledger.grant(account.pk, CREDIT, OPENING_REFERENCE)
        role = {"role": Membership.Role.OWNER}
        Membership.objects.get_or_create(user=_owner(credentials), account=account, defaults=role)
        _issue_key(account, credentials.token)
    sample = Account.objects.filter(name=sample_data.NAME).first()
    if sample is None and sample_data.is_possible():
        sample = sample_data.create(sample_data.NAME, EMAIL)
    # From now on this process only waits, and it must not keep a connection or a pool's threads across a fork.
    for one in connections.all(initialized_only=True):
        one.close()
        if hasattr(one, "close_pool"):
            one.close_pool()
    return sample


def _owner(credentials: Credentials) -> User:
    """Returns the demo's person, who is also staff, so that they can use the admin.

    A hash with our salt is that of our password, so that the slow check of the password is not needed.
    """
    user = User.objects.filter(email=EMAIL).first()
    if user is None:
        user = User(email=EMAIL, is_staff=True, is_superuser=True)
    if f"${credentials.salt}$" not in user.password:
        user.password = make_password(credentials.password, salt=credentials.salt)
        user.save()
    return user


def _issue_key(account: Account, token: str) -> None:
    """Issues the demo's key if it does not work: it was deleted, has expired, or the secret key has changed."""
    found = ApiKey.objects.filter(fingerprint=keys.fingerprint(token)).first()
    if found is not None and found.account_id == account.pk and found.verifier is not None:
        is_usable = found.expires_at is None or found.expires_at > timezone.now()
        if is_usable:
            return
    for superseded in (found, keys.find(account, NAME)):
        if superseded is not None:
            keys.delete(superseded)
    ApiKey.objects.create(
        account=account,
        name=NAME,
        fingerprint=keys.fingerprint(token),
        verifier=keys.verifier(token),
        last_four=token[-4:],
    )
