"""Holds answers of the simulated provider in OpenAI's `/chat/completions`."""

from functools import partial

from simulator.openai import Chat
from tests.inference.dialects.simulated import answered

_whole = partial(answered, Chat())
_stream = partial(answered, Chat(), stream=True, stream_options={"include_usage": True})
_TOOLS = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]

WHOLE = _whole("reasoning+cached:20")
STREAM = _stream("reasoning+cached:20")
TOOLS_WHOLE = _whole("tools", "both please", tools=_TOOLS)
TOOLS_STREAM = _stream("tools", "both please", tools=_TOOLS)
NO_USAGE_WHOLE = _whole("no-usage")
NO_USAGE_STREAM = _stream("no-usage")
BAD_USAGE_WHOLE = _whole("bad-usage:negative")
BAD_USAGE_STREAM = _stream("bad-usage:fraction")
ERROR_STREAM = _stream("error-frame:2")
TRUNCATED_STREAM = _stream("truncated")
DRESSED_STREAM = _stream("crlf+comments+multiline")
STATUS_401 = _whole("status:401")
STATUS_429 = _whole("status:429")
STATUS_500 = _whole("status:500")
