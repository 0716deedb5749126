"""Django's `for` tag, which lets other requests run between the rows of a page."""

from typing import Any

from django import template
from django.template import defaulttags
from django.template.base import Node, Parser, Token

from ..server.turns import take_turns

register = template.Library()


class TurnNode(Node):
    """Writes nothing, and lets other requests run if the page's turn is over."""

    def render(self, context: Any) -> str:
        take_turns()
        return ""


@register.tag("for")
def do_for(parser: Parser, token: Token) -> Node:
    """Replaces Django's `for` in all templates; lets other requests run between items (settings.TEMPLATES)."""
    node = defaulttags.do_for(parser, token)
    node.nodelist_loop.append(TurnNode())  # type: ignore[arg-type]  # django-stubs has the wrong type
    return node
