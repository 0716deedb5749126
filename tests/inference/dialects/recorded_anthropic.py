"""Holds answers of the simulated provider in Anthropic's `/messages`."""

from functools import partial

from simulator.anthropic import Messages
from tests.inference.dialects.simulated import answered

_whole = partial(answered, Messages())
_stream = partial(answered, Messages(), stream=True)
_WEATHER, _CLOCK = ({"name": name, "input_schema": {"type": "object"}} for name in ("weather", "clock"))

WHOLE = _whole("reasoning+cached:20+cache-write:7:3")
STREAM = _stream("reasoning+cached:20+cache-write:7:3")
TOOLS_WHOLE = _whole("tools", "both please", tools=[_WEATHER, _CLOCK])
TOOLS_STREAM = _stream("tools", "both please", tools=[_WEATHER, _CLOCK])
NO_ARGUMENTS_STREAM = _stream("tools+empty-arguments", "hello there", tools=[_WEATHER])
NO_USAGE_WHOLE = _whole("no-usage")
NO_USAGE_STREAM = _stream("no-usage")
BAD_USAGE_WHOLE = _whole("bad-usage:negative")
BAD_USAGE_STREAM = _stream("bad-usage:fraction")
LATE_USAGE_STREAM = _stream("late-usage:0.01")
EXTRA_WHOLE = _whole("extra-fields")
EXTRA_STREAM = _stream("extra-fields")
ERROR_STREAM = _stream("error-frame:2")
TRUNCATED_STREAM = _stream("truncated")
DRESSED_STREAM = _stream("crlf+comments+multiline+pings:1:0.001")
STATUS_401 = _whole("status:401")
STATUS_429 = _whole("status:429")
STATUS_500 = _whole("status:500")
