"""Tells pages which ways of signing in there are."""

from django import template

from accounts.models import User
from accounts.sign_in import may_use_password

register = template.Library()


@register.filter
def has_password(person: User) -> bool:
    """Tells whether the person has a password to sign in with."""
    return may_use_password(person) and person.has_usable_password()
