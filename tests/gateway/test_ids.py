import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ids import EPOCH, first_uuid7, generation_id, parse_generation_id, parse_request_id, request_id, uuid7

SLOT = 245  # nanoseconds: the 4096th part of a millisecond, the resolution of the order
LAST_MILLISECOND = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
PREFIXES = ("gen-", "resp_", "msg_")
moments = st.integers(0, 2**48 * 1_000_000 - 1)


def uuid_at(nanoseconds: int) -> uuid.UUID:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: nanoseconds)
        return uuid7()


@given(moments)
def test_a_uuid_is_version_7_of_its_millisecond(nanoseconds: int) -> None:
    made = uuid_at(nanoseconds)
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == nanoseconds // 1_000_000


@given(moments)
def test_a_bound_of_a_millisecond_is_between_what_was_made_before_and_in_it(nanoseconds: int) -> None:
    milliseconds = min(nanoseconds // 1_000_000, LAST_MILLISECOND)
    bound = first_uuid7(EPOCH + timedelta(milliseconds=milliseconds))
    assert bound <= uuid_at(milliseconds * 1_000_000)
    assert milliseconds == 0 or uuid_at(milliseconds * 1_000_000 - 1) < bound


@given(moments, moments)
def test_uuids_sort_by_their_time(one: int, other: int) -> None:
    earlier, later = sorted((one, other))
    if later - earlier >= SLOT:
        assert uuid_at(earlier) < uuid_at(later)
        assert generation_id(uuid_at(earlier)) < generation_id(uuid_at(later))


def test_uuids_of_one_moment_differ() -> None:
    assert len({uuid_at(10**18) for _ in range(1000)}) == 1000


@given(st.uuids())
def test_a_generation_id_is_read_back(made: uuid.UUID) -> None:
    text = generation_id(made)
    assert (text[:4], len(text)) == ("gen-", 36)
    assert {parse_generation_id(generation_id(made, prefix)) for prefix in PREFIXES} == {made}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gen-",
        "0" * 32,
        "gen-" + "0" * 31,
        "gen-" + "0" * 33,
        "gen-" + "A" * 32,
        "GEN-" + "0" * 32,
        "gen-" + "\N{ARABIC-INDIC DIGIT ZERO}" * 32,
        "gen-" + "0" * 31 + "\n",
        " gen-" + "0" * 32,
        "gen-gen-" + "0" * 28,
        "gen-msg_" + "0" * 32,
        "resp_0_" + "0" * 32,
        "gen-" + "0_" * 16,
        f"gen-{uuid.UUID(int=1)}",
    ],
)
def test_anything_but_a_generation_id_is_parsed_as_none(text: str) -> None:
    assert parse_generation_id(text) is None


@given(st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    parsed = parse_generation_id(text)
    assert parsed is None or text in {generation_id(parsed, prefix) for prefix in PREFIXES}


@given(st.uuids())
def test_a_request_id_is_read_back_and_is_no_generation_id(made: uuid.UUID) -> None:
    text = request_id(made)
    assert len(text) == 36
    assert parse_request_id(text) == made
    assert parse_generation_id(text) is None
