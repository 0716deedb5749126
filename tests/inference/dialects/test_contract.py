"""Every dialect of the registry passes `DialectContract`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.pricing import Usage
from inference.dialects import DIALECTS, base
from tests.inference.dialects import recorded_anthropic, recorded_openai
from tests.inference.dialects.contract import DialectContract, Recordings
from tests.inference.dialects.playback import play


class TestOpenAI(DialectContract):
    recorded = Recordings(
        dialect=DIALECTS["openai"],
        path="/chat/completions",
        credential_header=("Authorization", "Bearer {}"),
        usage=Usage(uncached_prompt=5, cache_read=20, completion=10, reasoning=5),
        whole=recorded_openai.WHOLE,
        stream=recorded_openai.STREAM,
        dressed_stream=recorded_openai.DRESSED_STREAM,
        tools_whole=recorded_openai.TOOLS_WHOLE,
        tools_stream=recorded_openai.TOOLS_STREAM,
        no_usage_whole=recorded_openai.NO_USAGE_WHOLE,
        no_usage_stream=recorded_openai.NO_USAGE_STREAM,
        bad_usage_whole=recorded_openai.BAD_USAGE_WHOLE,
        bad_usage_stream=recorded_openai.BAD_USAGE_STREAM,
        error_stream=recorded_openai.ERROR_STREAM,
        truncated_stream=recorded_openai.TRUNCATED_STREAM,
        errors={
            401: (recorded_openai.STATUS_401, "Incorrect API key"),
            429: (recorded_openai.STATUS_429, "Rate limit reached"),
            500: (recorded_openai.STATUS_500, "The server had an error"),
        },
        refuses={**dict.fromkeys(base.REROUTING_FIELDS, "x"), "service_tier": "priority", "store": True},
    )


class TestAnthropic(DialectContract):
    recorded = Recordings(
        dialect=DIALECTS["anthropic"],
        path="/messages",
        credential_header=("x-api-key", "{}"),
        usage=Usage(uncached_prompt=5, cache_read=20, cache_write_5m=7, cache_write_1h=3, completion=10),
        whole=recorded_anthropic.WHOLE,
        stream=recorded_anthropic.STREAM,
        dressed_stream=recorded_anthropic.DRESSED_STREAM,
        tools_whole=recorded_anthropic.TOOLS_WHOLE,
        tools_stream=recorded_anthropic.TOOLS_STREAM,
        no_usage_whole=recorded_anthropic.NO_USAGE_WHOLE,
        no_usage_stream=recorded_anthropic.NO_USAGE_STREAM,
        bad_usage_whole=recorded_anthropic.BAD_USAGE_WHOLE,
        bad_usage_stream=recorded_anthropic.BAD_USAGE_STREAM,
        error_stream=recorded_anthropic.ERROR_STREAM,
        truncated_stream=recorded_anthropic.TRUNCATED_STREAM,
        errors={
            401: (recorded_anthropic.STATUS_401, "invalid x-api-key"),
            429: (recorded_anthropic.STATUS_429, "rate limit"),
            500: (recorded_anthropic.STATUS_500, "Internal server error"),
        },
        refuses={
            **dict.fromkeys(base.REFUSED_OF_MESSAGES, "x"),
            "service_tier": "priority",
            "store": True,
            "speed": "fast",
        },
    )


ALL = [TestOpenAI.recorded, TestAnthropic.recorded]


@pytest.mark.parametrize("recorded", ALL, ids=["openai", "anthropic"])
@given(data=st.data())
def test_a_stream_cut_into_any_pieces_is_the_same(recorded: Recordings, data: st.DataObject) -> None:
    whole = recorded.stream
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=30)))
    blocks = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert play(recorded.dialect, blocks) == play(recorded.dialect, [whole])


def test_every_dialect_is_held_to_it() -> None:
    held = {type(recorded.dialect) for recorded in ALL}
    assert held == {type(dialect) for dialect in DIALECTS.values()}
