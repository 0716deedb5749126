"""Turns of a worker's requests: long work has to pause by itself."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from django import template
from django.template import defaulttags
from django.template.base import Node, Parser, Token
from greenlet import getcurrent

T = TypeVar("T")
register = template.Library()

PAUSE_SECONDS = 0.0001  # more than 0, for which gevent hardly looks at sockets: other requests waited half a second
ITEMS_A_TURN = 1000
# Of pages and downloads. A request beside them takes several steps in such a rest, whose waits are shorter.
TURN_SECONDS, REST_SECONDS = 0.005, 0.003

_turn = (0, 0.0)  # which greenlet works on a page, and since when
_free_at = 0.0  # when the turns that are given away, and the rest behind them, have ended


def pause(seconds: float = PAUSE_SECONDS) -> None:
    """Lets other requests run."""
    time.sleep(seconds)


def in_turns(items: Iterable[T]) -> Iterator[T]:
    """The items, with pauses."""
    for position, item in enumerate(items, 1):
        yield item
        if not position % ITEMS_A_TURN:
            pause()


def take_turns() -> None:
    """Pauses work on a page where its turn is over, or another's is not."""
    global _turn, _free_at  # noqa: PLW0603  # of the worker, which has one
    me, now = id(getcurrent()), time.perf_counter()
    whose, since = _turn
    if me == whose and now - since <= TURN_SECONDS:
        return
    begin = now if me != whose and now >= _free_at else max(now + REST_SECONDS, _free_at)
    _free_at = begin + TURN_SECONDS + REST_SECONDS
    if begin > now:
        pause(begin - now)
    _turn = me, time.perf_counter()


class TurnNode(Node):
    """A node that writes nothing."""

    def render(self, context: Any) -> str:
        take_turns()
        return ""


@register.tag("for")
def do_for(parser: Parser, token: Token) -> Node:
    """Django's `for`, with turns (settings.TEMPLATES)."""
    node = defaulttags.do_for(parser, token)
    node.nodelist_loop.append(TurnNode())  # type: ignore[arg-type]  # a NodeList, which django-stubs takes for one of str
    return node
