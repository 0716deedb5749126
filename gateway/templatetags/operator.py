"""Gives every template the operator of the gateway. Pages of errors are rendered without context processors."""

from django import template

from ..operator import Operator
from ..operator import operator as read_operator

register = template.Library()


@register.simple_tag
def operator() -> Operator:
    """Returns the operator, for `{% operator as operator %}`."""
    return read_operator()


@register.simple_tag
def product_name() -> str:
    """Returns the product's name."""
    return read_operator().name
