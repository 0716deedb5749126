"""Shows names that people chose on pages."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

LONG = 72  # characters; aliases are shorter


@register.filter
def named(name: str) -> SafeString:
    """Isolates a name from the text around it, in case it is written from right to left.

    A long name is clamped on the page, and its title has the whole name.
    """
    if len(name) <= LONG:
        return format_html("<bdi>{}</bdi>", name) if name else SafeString()
    return format_html('<bdi class="clamp" title="{0}">{0}</bdi>', name)
