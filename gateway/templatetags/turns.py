"""`for` as in every template, which lets the worker's other requests run between rows (settings.TEMPLATES)."""

from typing import Any

from django import template
from django.template import defaulttags
from django.template.base import Node, Parser, Token

from gateway.turns import take_turns

register = template.Library()


class TurnNode(Node):
    """Writes nothing."""

    def render(self, context: Any) -> str:
        take_turns()
        return ""


@register.tag("for")
def do_for(parser: Parser, token: Token) -> Node:
    """Django's, with a turn behind each row."""
    node = defaulttags.do_for(parser, token)
    node.nodelist_loop.append(TurnNode())  # type: ignore[arg-type]  # a NodeList, which django-stubs takes for one of str
    return node
