"""Names that people chose, on pages."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

LONG = 72  # characters; no alias is as long


@register.filter
def named(name: str) -> SafeString:
    """A name that turns nothing around it, whichever way its script runs. Of a long one the title has all."""
    if len(name) <= LONG:
        return format_html("<bdi>{}</bdi>", name) if name else SafeString()
    return format_html('<bdi class="clamp" title="{0}">{0}</bdi>', name)
