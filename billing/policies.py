"""Changes the policies of an account, its keys and their tags, and the tags themselves (docs/policies.md).

Each change locks the account's row and is in the audit log. A policy with a budget gets a row of Spending,
which is made from the records while no settlement runs, so that none is missed or counted twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.actions import Action
from accounts.audit import Subject
from accounts.keys import refusal_of_account
from accounts.members import locked_account
from accounts.models import MOST_TAGS, Account, ApiKey, Policy
from accounts.policies import TAG, TAG_RULE, compiled
from gateway.errors import InvalidRequest

from .ledger import spending
from .models import Spending, Wallet

NEW_KEYS = "new keys"  # the holder of a default policy, in the audit log
SETTLED_WITHIN = timedelta(minutes=1)  # far longer than a settlement may take to commit


@dataclass(frozen=True, slots=True)
class Holder:
    """Names what a policy is for: an account, one of its keys, the keys with a tag, or new keys (the default)."""

    account: Account
    level: Policy.Level
    key: ApiKey | None = None
    tag: str = ""

    @classmethod
    def of_account(cls, account: Account) -> "Holder":
        return cls(account, Policy.Level.ACCOUNT)

    @classmethod
    def of_default(cls, account: Account) -> "Holder":
        return cls(account, Policy.Level.DEFAULT)

    @classmethod
    def of_key(cls, key: ApiKey) -> "Holder":
        return cls(key.account, Policy.Level.KEY, key=key)

    @classmethod
    def of_tag(cls, account: Account, tag: str) -> "Holder":
        """Raises InvalidRequest if this is not a tag."""
        return cls(account, Policy.Level.TAG, tag=checked_tag(tag))

    @property
    def subject(self) -> Subject:
        """Returns what the audit log calls the holder."""
        if self.key is not None:
            return Subject.of_key(self.key)
        if self.tag:
            return Subject("tag", self.tag, self.tag)
        return Subject(NEW_KEYS if self.level == Policy.Level.DEFAULT else "account", str(self.account.pk))

    @property
    def policy(self) -> Policy | None:
        """Reads the policy, or None."""
        return Policy.objects.filter(account=self.account, level=self.level, key=self.key, tag=self.tag).first()

    @property
    def rules(self) -> dict[str, Any]:
        """Reads the rules of the policy. Without a policy they are empty."""
        policy = self.policy
        return {} if policy is None else policy.rules


def set_policy(holder: Holder, rules: dict[str, Any]) -> bool:
    """Replaces a policy by rules that `catalogue.policy_form` has checked; empty ones remove it.

    Tells whether anything changed. Raises AccountSuspended and AccountClosed.
    """
    # 1. Add up older records, before any lock: there may be many.
    now = timezone.now()
    today, since = now.astimezone(UTC).date(), now - SETTLED_WITHIN
    budgets = compiled(rules).budgets
    probe = Policy(account=holder.account, level=holder.level, key=holder.key, tag=holder.tag)
    already = spending.sums_from_records(probe, today, before=since) if budgets else []
    # 2. Replace the policy, and try again if a settlement takes long.
    return spending.try_again_if_locked(lambda: _replace(holder, rules, today, already, since))


@transaction.atomic
def _replace(holder: Holder, rules: dict[str, Any], today: date, already: list[Decimal], since: datetime) -> bool:
    # 1. Lock the account.
    now = timezone.now()
    account = locked_account(holder.account.pk)
    if account.suspended_at is not None:
        raise refusal_of_account(is_closed=account.closed_at is not None)
    # 2. Write or remove the policy, and note the change.
    policy = holder.policy
    old = None if policy is None else policy.rules
    if (old or {}) == rules:
        return False
    audit.record(account.pk, Action.POLICY_CHANGED, holder.subject, old=old, new=rules or None)
    if not rules:
        if policy is not None:
            policy.delete()
        return True
    policy = policy or Policy(account=holder.account, level=holder.level, key=holder.key, tag=holder.tag)
    policy.rules, policy.changed_at = rules, now
    policy.save()
    # 3. Begin or go on to add up what is spent.
    if holder.level != Policy.Level.DEFAULT:
        _keep_spending(policy, today, already, since)
    return True


def set_tags(key: ApiKey, tags: Iterable[str]) -> None:
    """Replaces the tags of a key. What it has spent before stays with its former tags. Raises InvalidRequest."""
    new = checked_tags(tags)
    with transaction.atomic():
        locked_account(key.account_id)
        key.refresh_from_db(fields=["tags"])
        old = key.tags.split()
        if old != new:
            ApiKey.objects.filter(pk=key.pk).update(tags=" ".join(new))
            key.tags = " ".join(new)
            audit.record(key.account_id, Action.TAGS_CHANGED, Subject.of_key(key), old={"tags": old}, new={"tags": new})


def give_default(instance: ApiKey, created: bool, **_signal: Any) -> None:
    """Gives a new key its account's default policy, if there is one."""
    if created:
        rules = Holder.of_default(instance.account).rules
        if rules:
            set_policy(Holder.of_key(instance), rules)


def checked_tags(tags: Iterable[str]) -> list[str]:
    """Returns the tags sorted and once each. Raises InvalidRequest, which names the tag."""
    checked = sorted({checked_tag(tag, f"tags[{number}]") for number, tag in enumerate(tags)})
    if len(checked) > MOST_TAGS:
        raise InvalidRequest.of_field("tags", f"must be at most {MOST_TAGS}.")
    return checked


def checked_tag(tag: Any, path: str = "tag") -> str:
    """Raises InvalidRequest unless this is a tag."""
    if not isinstance(tag, str) or not TAG.fullmatch(tag):
        raise InvalidRequest.of_field(path, f"must be {TAG_RULE}.")
    return tag


def _keep_spending(policy: Policy, today: date, already: list[Decimal], since: datetime) -> None:
    row = Spending.objects.filter(policy=policy).first()
    rules = compiled(policy.rules)
    if not rules.budgets:
        if row is not None:
            row.delete()
        return
    if row is None:
        spending.exclude_settlements()
        now = timezone.now().astimezone(UTC).date()
        if now != today:  # midnight has passed
            today, already = now, spending.sums_from_records(policy, now, before=since)
        row = spending.restart(policy, today, already, since)
    else:
        Wallet.objects.select_for_update(no_key=True).get(pk=policy.account_id)
        row.refresh_from_db()
    row.lines = spending.lines_of(rules)
    row.save(update_fields=["lines"])
    spending.write_alerts(row, None, timezone.now())
