"""A `model` string has the meaning that docs/api.md#model-ids gives it."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.routing.model_ids import ALIAS_NAME, AliasId, AutoId, ExplicitId, parse_model_id, region_label
from gateway.errors import InvalidAliasName, InvalidRequest

segments = st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1, max_size=12)
providers = segments.filter(lambda text: text not in ("auto", "alias"))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("sim/test/echo", ExplicitId("sim", "test/echo", None)),
        ("sim/test/echo/FRPAR", ExplicitId("sim", "test/echo", "FRPAR")),
        ("sim/test/echo/global", ExplicitId("sim", "test/echo", "global")),
        ("sim/test/echo/frPar", ExplicitId("sim", "test/echo", "FRPAR")),
        ("sim/test/echo/GLOBAL", ExplicitId("sim", "test/echo", "global")),
        (
            "sim/test/echo/\N{LATIN SMALL LETTER LONG S}",
            ExplicitId("sim", "test/echo", "\N{LATIN SMALL LETTER LONG S}"),
        ),
        ("SIM/Test/ECHO", ExplicitId("SIM", "Test/ECHO", None)),
        ("auto/test/echo", AutoId("test/echo")),
        ("alias/fast", AliasId("fast")),
        ("alias/" + "a" * 64, AliasId("a" * 64)),
        ("alias/0-_", AliasId("0-_")),
    ],
)
def test_each_form_is_understood(text: str, meaning: object) -> None:
    assert parse_model_id(text) == meaning


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("echo", "1 segment."),
        ("test/echo", "2 segments."),
        ("a/b/c/d/e", "5 segments."),
        ("", "1 segment (an empty one among them)."),
        ("a//c", "3 segments (an empty one among them)."),
        ("/a/b", "3 segments (an empty one among them)."),
        ("a/b/c/", "4 segments (an empty one among them)."),
        ("auto", "1 segment."),
        ("auto/echo", "2 segments."),
        ("auto/test/", "3 segments (an empty one among them)."),
        ("ALIAS/fast", "2 segments."),
    ],
)
def test_a_wrong_number_of_segments_is_reported(text: str, count: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_model_id(text)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_request_error", "model")
    assert f"received {count}" in caught.value.message


def test_an_auto_id_names_no_region() -> None:
    with pytest.raises(InvalidRequest, match="received 4 segments") as caught:
        parse_model_id("auto/test/echo/FRPAR")
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    "text",
    [
        "alias",
        "alias/",
        "alias/Fast",
        "alias/-fast",
        "alias/_fast",
        "alias/a/b",
        "alias/" + "a" * 65,
        "alias/fast\n",
        "alias/fast ",
        "alias/été",
        "alias/alias/x",
    ],
)
def test_a_wrong_alias_name_is_one(text: str) -> None:
    with pytest.raises(InvalidAliasName) as caught:
        parse_model_id(text)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_alias_name", "model")


def test_a_long_id_is_quoted_in_part() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_model_id("x" * 10_000)
    assert len(caught.value.message) < 400


@given(providers, segments, segments, st.none() | segments)
def test_any_three_or_four_segments_pin(provider: str, creator: str, model: str, locode: str | None) -> None:
    text = "/".join(filter(None, (provider, creator, model, locode)))
    assert parse_model_id(text) == ExplicitId(provider, f"{creator}/{model}", locode and region_label(locode))


@given(segments, segments)
def test_auto_ids_are_printed_as_they_are_read(creator: str, model: str) -> None:
    assert str(parse_model_id(f"auto/{creator}/{model}")) == f"auto/{creator}/{model}"


@given(st.from_regex(ALIAS_NAME, fullmatch=True))
def test_alias_ids_are_printed_as_they_are_read(name: str) -> None:
    assert str(parse_model_id(f"alias/{name}")) == f"alias/{name}"


@given(st.text(st.sampled_from("alisuto/-_é\n A0"), max_size=20))
def test_any_text_is_understood_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequest):
        assert isinstance(parse_model_id(text), ExplicitId | AutoId | AliasId)
