"""Writes a month of the demo's sample data for an account and its people, for screenshots and axe.

`write` runs in a command on the gateway's database (tests.pages.with_story), on SQLite.
"""

import json
import sys
from datetime import timedelta
from decimal import Decimal

from django.utils import timezone

from accounts import audit, invitations, keys
from accounts.invitations import link
from accounts.models import Account, ApiKey, Membership, User, Webhook
from accounts.webhooks import endpoints
from aliases.models import Alias
from billing.accounts import open_account
from billing.models import Generation, RequestFailure
from billing.policies import Holder, set_policy, set_tags
from demo import sample_data
from tests.browser import PASSWORD
from tests.pages import MEMBER, NEWCOMER, OWNER, STAFF


def write(requests: int) -> None:
    """Writes the story, with this number of requests, and prints as JSON what the pages' addresses need."""
    account = sample_data.create("Northwind", OWNER, requests)
    with sample_data.clock_at(timezone.now() - timedelta(days=sample_data.DAYS)):
        open_account("Northwind Research", currency="USD", credit=Decimal(25), owner_email=OWNER)
    _people(account)
    _policies(account)
    newest = Generation.objects.filter(account=account).latest("created_at")
    ids = {
        "account": account.pk,
        "alias": Alias.objects.get(account=account, name="assistant").pk,
        "key": keys.find(account, "staging"),
        "generation": newest.public_id,
        "record": newest.pk,
        "failure": RequestFailure.objects.latest("created_at").request_id,
        "membership": account.membership_set.get(user__email=MEMBER).pk,
        "webhook": _webhook(account).pk,
        "invitation": link(account.invitations.get()),
    }
    sys.stdout.write(json.dumps(ids, default=_plain))


def _policies(account: Account) -> None:
    key, owner = keys.find(account, "staging"), User.objects.get(email=OWNER)
    assert key is not None
    with audit.acting_as(audit.of_member(owner)):
        set_tags(key, ["env=staging", "team=search"])
        budgets = [{"amount": "5.00", "period": "month"}, {"amount": "1000.00", "period": "total"}]
        set_policy(Holder.of_key(key), {"zero_data_retention": True, "budget": budgets, "alerts": [1, 80]})
        set_policy(Holder.of_key(key), {"locodes": ["FR*"], "budget": budgets, "alerts": [1, 80]})
        set_policy(Holder.of_tag(account, "team=search"), {"budget": [{"amount": "0.00", "period": "day"}]})
        set_policy(Holder.of_account(account), {"providers": ["mistral", "scaleway"], "rpm": 600})
        set_policy(Holder.of_default(account), {"jurisdictions": ["eu-sovereign"]})


def _webhook(account: Account) -> Webhook:
    """Adds a webhook with a delivery in each state. Nothing is due, so that nothing is sent."""
    webhook = Webhook.objects.create(account=account, url="https://example.com/hook", events=["*"], secret="")
    delivered, waiting, given_up = (endpoints.send_test(webhook) for _ in range(3))
    now = timezone.now()
    answers = [
        {"at": now.isoformat(), "status": 503, "error": None},
        {"at": now.isoformat(), "status": 200, "error": None},
    ]
    delivered.attempts, delivered.delivered_at, delivered.next_attempt_at = answers, now, None
    waiting.attempts, waiting.next_attempt_at = answers[:1], now + timedelta(days=300)
    given_up.attempts, given_up.next_attempt_at = answers[:1] * 8, None
    for each in (delivered, waiting, given_up):
        each.save()
    return webhook


def _plain(value: object) -> str:
    return str(value.pk if isinstance(value, ApiKey) else value)


def _people(account: Account) -> None:
    owner = User.objects.get(email=OWNER)
    owner.set_password(PASSWORD)
    owner.save()
    member = User.objects.create_user(MEMBER, PASSWORD)
    Membership.objects.create(user=member, account=account)
    User.objects.create_user(NEWCOMER, PASSWORD)
    User.objects.create_superuser(STAFF, PASSWORD)
    invitations.invite(account.pk, "sasha@northwind.example", Membership.Role.MEMBER, by=owner)
