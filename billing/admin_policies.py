"""Shows policies in the admin. Staff set a policy as JSON, which is checked as by the command `set_policy`."""

import json
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from accounts.members import locked_account
from accounts.models import Account, Policy
from catalogue.policy_form import CheckedPolicy, PolicyDecoder, checked_policy
from catalogue.routing import snapshot
from gateway.errors import InvalidRequest
from gateway.pages.admin import BoundedAdmin, StaleFormCheck

from .policies import Holder, checked_tag, set_policy

POLICY_RIGHT = "accounts.change_apikey"  # lets staff see and set policies
SUSPENDED = "The account is suspended or closed: nothing in it can be changed."


class PolicyForm(StaleFormCheck, forms.ModelForm[Policy]):
    """Asks for the rules of a policy as JSON, and for whose it is if it is new."""

    class Meta:
        model = Policy
        fields = ("account", "level", "key", "tag", "rules")
        help_texts: ClassVar = {
            "key": "Only for the policy of a key.",
            "tag": "Only for the policy of a tag, such as team=search.",
            "rules": "The whole policy as JSON, as set_policy takes it. {} removes it.",
        }

    checked: CheckedPolicy

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name in self.fields.keys() & {"key", "rules"}:
            self.fields[name].required = False  # Django takes {} for an empty value
        if "rules" in self.fields:
            self.fields["rules"].decoder = PolicyDecoder  # type: ignore[attr-defined]  # it is a JSONField

    def clean_tag(self) -> str:
        tag: str = self.cleaned_data["tag"]
        try:
            return checked_tag(tag) if tag else ""
        except InvalidRequest as error:
            raise forms.ValidationError(error.message) from None

    def clean_rules(self) -> dict[str, Any]:
        rules = self.cleaned_data["rules"]
        if rules is None:
            raise forms.ValidationError("A policy must be an object.")
        try:
            self.checked = checked_policy(snapshot.current(), rules)
        except InvalidRequest as error:
            raise forms.ValidationError(error.message) from None
        return self.checked.rules

    def clean(self) -> dict[str, Any] | None:
        values = super().clean()
        is_new = self.instance._state.adding
        account = self.cleaned_data.get("account") if is_new else self.instance.account
        if is_new:
            self._check_holder(account)
        if account is not None and account.suspended_at is not None:
            self.add_error(None, SUSPENDED)
        return values

    def _check_holder(self, account: Account | None) -> None:
        level, key, tag = (self.cleaned_data.get(name) for name in ("level", "key", "tag"))
        if account is None or level is None:
            return
        if (level == Policy.Level.KEY) != (key is not None):
            self.add_error("key", "The policy of a key needs a key, and no other policy has one.")
        elif key is not None and key.account_id != account.pk:
            self.add_error("key", f"This key does not belong to {account.name}.")
        elif (level == Policy.Level.TAG) != bool(tag):
            self.add_error("tag", "The policy of a tag needs a tag, and no other policy has one.")
        elif Holder(account, Policy.Level(level), key=key, tag=tag or "").policy is not None:
            self.add_error("level", "There is such a policy already: change that one.")
        if self.cleaned_data.get("rules") == {}:
            self.add_error("rules", "A new policy needs a rule.")


@admin.register(Policy)
class PolicyAdmin(BoundedAdmin):
    """Shows policies. `set_policy` saves them, not Django, because it also adds up what a new budget has spent."""

    form = PolicyForm
    list_display = ("account", "level", "key", "tag", "rules_in_lines", "changed_at")
    list_filter = ("level",)
    list_select_related = ("account", "key")
    autocomplete_fields = ("account", "key")
    search_fields = ("account__name", "key__name", "=tag")
    search_help_text = "Part of the account's or the key's name, or a tag."
    fields = ("account", "level", "key", "tag", "rules")

    @admin.display(description="rules")
    def rules_in_lines(self, policy: Policy) -> str:
        lines = ((name, json.dumps(value, ensure_ascii=False).strip('"')) for name, value in policy.rules.items())
        return format_html_join(SafeString("<br>"), "{}: {}", lines)

    def get_readonly_fields(self, request: HttpRequest, obj: Policy | None = None) -> tuple[str, ...]:
        return () if obj is None else ("account", "level", "key", "tag")

    def lock_row(self, row: Model) -> None:
        # `set_policy` locks the account before the policy, so this does too.
        assert isinstance(row, Policy)  # noqa: S101
        locked_account(row.account_id)

    def save_model(self, request: HttpRequest, obj: Policy, form: Any, change: bool) -> None:
        holder = Holder(obj.account, Policy.Level(obj.level), key=obj.key, tag=obj.tag)
        set_policy(holder, form.checked.rules)
        saved = holder.policy
        if saved is not None:
            obj.pk, obj.changed_at = saved.pk, saved.changed_at
        for warning in form.checked.warnings:
            self.message_user(request, warning, messages.WARNING)

    def has_view_permission(self, request: HttpRequest, obj: Policy | None = None) -> bool:
        return request.user.has_perm(POLICY_RIGHT) or super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(POLICY_RIGHT)

    def has_change_permission(self, request: HttpRequest, obj: Policy | None = None) -> bool:
        return request.user.has_perm(POLICY_RIGHT)

    def has_delete_permission(self, request: HttpRequest, obj: Policy | None = None) -> bool:
        return False
