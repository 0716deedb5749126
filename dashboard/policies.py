"""Shows the policies of an account, its keys and their tags to its members. Owners set them (docs/policies.md)."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from accounts import audit
from accounts.actions import Action
from accounts.models import AuditEvent, Policy
from billing.policies import Holder, checked_tag, set_policy
from catalogue.routing import snapshot
from gateway.errors import InvalidRequest
from gateway.server.turns import take_turns

from .keys import find_key
from .parts.access import AccountContext, account_page, page_address, signed_in_page
from .parts.budgets import BudgetLine, budgets_of
from .parts.policy_form import PolicyForm
from .parts.policy_words import ChangeLine, changes_of, described

NEWEST_EVENTS = 50
MOST_LISTED = 500  # policies


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """Holds a policy in a list: whose it is, the address of its page, its rules in words, and its budgets."""

    whose: str
    address: str
    rules: list[tuple[str, str]]
    budgets: list[BudgetLine]


class TagForm(forms.Form):
    """Asks for the tag whose policy is to be set."""

    tag = forms.CharField(
        label="Tag",
        help_text="Such as team=search. The policy holds for all keys with this tag.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
    )

    def __init__(self, data: Any) -> None:
        super().__init__(data, auto_id="new-%s", label_suffix="")

    def clean_tag(self) -> str:
        try:
            return checked_tag(self.cleaned_data["tag"])
        except InvalidRequest as error:
            raise forms.ValidationError(f"Must be {(error.rule or '').removeprefix('must be ')}") from None


@account_page("GET", "HEAD", "POST")
def policy_list(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Lists an account's policies and their newest changes. The form leads owners to the policy of a tag."""
    if request.method == "POST":
        current.require_owner()
    form = TagForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        return redirect(_address(Holder.of_tag(current.account, form.cleaned_data["tag"])))
    found = Policy.objects.filter(account=current.account).filter(Q(key=None) | Q(key__deleted_at=None))
    lines = _lines(found, current)
    by_level = {level: [line for policy, line in lines if policy.level == level] for level in Policy.Level.values}
    context = {
        "of_account": by_level[Policy.Level.ACCOUNT],
        "of_new_keys": by_level[Policy.Level.DEFAULT],
        "of_tags": by_level[Policy.Level.TAG],
        "of_keys": by_level[Policy.Level.KEY],
        "history": _history(current, Q()),
        "form": form,
    }
    return current.page(request, "policies", context, form)


@account_page("GET", "HEAD", "POST")
def account_policy(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows and sets the policy that holds for all keys of an account."""
    return _policy_page(request, current, Holder.of_account(current.account))


@account_page("GET", "HEAD", "POST")
def default_policy(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows and sets the policy that new keys are given."""
    return _policy_page(request, current, Holder.of_default(current.account))


@account_page("GET", "HEAD", "POST")
def tag_policy(request: HttpRequest, current: AccountContext, tag: str) -> HttpResponse:
    """Shows and sets the policy of the keys with a tag. Raises Http404 for a text that is no tag."""
    try:
        holder = Holder.of_tag(current.account, tag)
    except InvalidRequest:
        raise Http404 from None
    return _policy_page(request, current, holder)


@signed_in_page("GET", "HEAD", "POST")
def key_policy(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Shows and sets the policy of a key, with the others that hold for it."""
    key, current = find_key(request, key_id)
    if key.deleted_at is not None:
        messages.info(request, f"{key.name} has already been deleted.")
        return redirect(page_address("keys", key.account_id))
    return _policy_page(request, current, Holder.of_key(key))


def _policy_page(request: HttpRequest, current: AccountContext, holder: Holder) -> HttpResponse:
    if request.method == "POST":
        current.require_owner()
    sent = request.POST if request.method == "POST" else None
    if sent is not None and sent.get("action") == "remove":
        if set_policy(holder, {}):
            messages.success(request, "The policy has been removed.")
        return redirect(_address(holder))
    policy = holder.policy
    stored, seen = ({}, "") if policy is None else (policy.rules, policy.changed_at.isoformat())
    form = PolicyForm(sent, stored, snapshot.current(), currency=current.account.currency, seen=seen)
    checked = form.checked() if form.is_bound else None
    if checked is not None:
        is_changed = set_policy(holder, checked.rules)
        messages.success(request, "The policy has been saved." if is_changed else "No change: the policy is the same.")
        for warning in checked.warnings:
            messages.warning(request, f"Warning: {warning}")
        return redirect(_address(holder))
    of_holder = Q(object_kind=holder.subject.kind, object_id=holder.subject.id)
    context = {
        "holder": holder,
        "whose": _whose(holder),
        "policy": policy,
        "rules": described(stored, current.account.currency),
        "budgets": [] if policy is None else budgets_of([policy])[policy.pk],
        "others": _others(current, holder),
        "history": _history(current, of_holder),
        "form": form,
    }
    return current.page(request, "policy", context, form)


def _lines(found: "QuerySet[Policy]", current: AccountContext) -> list[tuple[Policy, PolicyLine]]:
    rows = list(found.select_related("key", "spending").order_by("tag", "key__name")[:MOST_LISTED])
    budgets = budgets_of(rows)
    lines = []
    for policy in rows:
        take_turns()
        holder = Holder(current.account, Policy.Level(policy.level), key=policy.key, tag=policy.tag)
        rules = described(policy.rules, current.account.currency)
        lines.append((policy, PolicyLine(_whose(holder), _address(holder), rules, budgets[policy.pk])))
    return lines


def _others(current: AccountContext, holder: Holder) -> list[PolicyLine]:
    """Returns the other policies that hold for a key: its tags' by name, and the account's."""
    if holder.key is None:
        return []
    mine = Q(level=Policy.Level.TAG, tag__in=holder.key.tags.split()) | Q(level=Policy.Level.ACCOUNT)
    lines = _lines(Policy.objects.filter(mine, account=current.account), current)
    return [line for _, line in sorted(lines, key=lambda each: each[0].level == Policy.Level.ACCOUNT)]


def _history(current: AccountContext, chosen: Q) -> list[ChangeLine]:
    of_policies = Q(action__in=[Action.POLICY_CHANGED, Action.TAGS_CHANGED])
    events = AuditEvent.objects.filter(chosen, of_policies, account=current.account)[:NEWEST_EVENTS]
    shown = audit.shown(events)
    return [line for event in shown for line in changes_of(event, current.account.currency)]


def _whose(holder: Holder) -> str:
    if holder.key is not None:
        return holder.key.name
    return holder.tag or ("All keys" if holder.level == Policy.Level.ACCOUNT else "New keys")


def _address(holder: Holder) -> str:
    if holder.key is not None:
        return reverse("key-policy", args=[holder.key.pk])
    if holder.tag:
        return f"{reverse('tag-policy', args=[holder.tag])}?account={holder.account.pk}"
    page = "account-policy" if holder.level == Policy.Level.ACCOUNT else "default-policy"
    return page_address(page, holder.account.pk)
