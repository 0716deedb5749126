"""The figures of the admin's first page, as far as whoever looks may see them."""

from typing import Any

from django import template
from django.utils import timezone

from billing import admin_home
from catalogue import health

register = template.Library()


@register.inclusion_tag("admin/home.html", takes_context=True)
def home(context: Any) -> dict[str, Any]:
    """`days`, `providers` and `balances`; each is None for who may not view records, providers or accounts."""
    user, now = context["request"].user, timezone.now()
    return {
        "days": admin_home.days(now) if user.has_perm("billing.view_generation") else None,
        "providers": health.in_trouble(now) if user.has_perm("catalogue.view_provider") else None,
        "balances": admin_home.low_balances(now) if user.has_perm("accounts.view_account") else None,
    }
