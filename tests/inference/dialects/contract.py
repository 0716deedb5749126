"""Every dialect must pass these tests with the simulator's replies, which have the same content in all dialects."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from catalogue.pricing import ContradictoryUsage, Usage
from gateway.errors import InvalidRequest
from gateway.fastpath.faults import UpstreamFault
from inference.answers import chat_answer
from inference.deltas import UnreadableEvent
from inference.dialects.base import Dialect
from inference.dialects.errors import MalformedReply
from tests.inference.dialects.playback import play
from tests.inference.dialects.routes import CREDENTIAL, call, route, upstream
from tests.inference.dialects.simulated import TEXT

THOUGHT = "First I read the question."
TOOLS = [("weather", {"query": "both please"}), ("clock", {"query": "both please"})]
HTML = b"<html><body>502 Bad Gateway</body></html>"


@dataclass(frozen=True)
class Recordings:
    """Holds one dialect's recordings.

    `whole` and `stream` contain the reasoning THOUGHT and the text TEXT; `tools_…` contain the calls of TOOLS. `errors`
    are bodies by status, each with its message; `refuses` are the fields that the dialect refuses, with a value.
    """

    dialect: Dialect
    path: str
    credential_header: tuple[str, str]
    usage: Usage
    whole: bytes
    stream: bytes
    dressed_stream: bytes
    tools_whole: bytes
    tools_stream: bytes
    no_usage_whole: bytes
    no_usage_stream: bytes
    bad_usage_whole: bytes
    bad_usage_stream: bytes
    error_stream: bytes
    truncated_stream: bytes
    errors: Mapping[int, tuple[bytes, str]]
    refuses: Mapping[str, Any]


class DialectContract:
    """Is subclassed as `Test…` with a dialect's recordings."""

    recorded: Recordings

    @property
    def dialect(self) -> Dialect:
        return self.recorded.dialect

    def test_a_whole_answer_is_a_chat_completion(self) -> None:
        reply = self.dialect.reply(self.recorded.whole, call())
        answer = chat_answer(reply.body, id="gen-1", created=1, model="m")
        [choice] = answer["choices"]
        assert (choice["index"], choice["finish_reason"], choice["message"]["role"]) == (0, "stop", "assistant")
        assert choice["message"]["content"] == TEXT
        assert choice["message"]["reasoning_content"] == THOUGHT
        assert "usage" not in answer

    def test_a_stream_says_what_the_whole_answer_says(self) -> None:
        played = play(self.dialect, [self.recorded.stream])
        assert (played.text(), played.text("reasoning_content"), played.finish) == (TEXT, THOUGHT, "stop")
        assert [delta["role"] for delta in played.deltas if "role" in delta] == ["assistant"]
        assert played.reached_end
        assert played.is_complete

    def test_usage_is_the_same_either_way(self) -> None:
        assert self.dialect.reply(self.recorded.whole, call()).usage == self.recorded.usage
        assert play(self.dialect, [self.recorded.stream]).usage == self.recorded.usage

    def test_usage_that_is_not_reported_is_none(self) -> None:
        assert self.dialect.reply(self.recorded.no_usage_whole, call()).usage is None
        assert play(self.dialect, [self.recorded.no_usage_stream]).usage is None

    def test_usage_that_contradicts_itself_is_raised(self) -> None:
        with pytest.raises(ContradictoryUsage):
            self.dialect.reply(self.recorded.bad_usage_whole, call())
        with pytest.raises(ContradictoryUsage):
            play(self.dialect, [self.recorded.bad_usage_stream])

    def test_tool_calls_of_a_whole_answer(self) -> None:
        reply = self.dialect.reply(self.recorded.tools_whole, call())
        [choice] = chat_answer(reply.body, id="gen-1", created=1, model="m")["choices"]
        calls = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        assert [(each["function"]["name"], orjson.loads(each["function"]["arguments"])) for each in calls] == TOOLS
        assert all(each["type"] == "function" and each["id"] for each in calls)

    def test_tool_calls_of_a_stream(self) -> None:
        played = play(self.dialect, [self.recorded.tools_stream])
        assert played.finish == "tool_calls"
        assert [(each["name"], orjson.loads(each["arguments"])) for each in played.tool_calls()] == TOOLS

    @pytest.mark.parametrize("name", ["stream", "tools_stream", "no_usage_stream", "dressed_stream"])
    def test_a_stream_cut_in_two_anywhere_is_the_same(self, name: str) -> None:
        """Odd framing is cut at every byte, including within characters and line ends; the others at every third."""
        whole: bytes = getattr(self.recorded, name)
        expected = play(self.dialect, [whole])
        assert expected.is_complete
        for at in range(1, len(whole), 1 if name == "dressed_stream" else 3):
            assert play(self.dialect, [whole[:at], whole[at:]]) == expected

    @pytest.mark.parametrize("name", ["stream", "tools_stream", "dressed_stream"])
    def test_a_stream_of_single_bytes_is_the_same(self, name: str) -> None:
        whole: bytes = getattr(self.recorded, name)
        assert play(self.dialect, [whole[at : at + 1] for at in range(len(whole))]) == play(self.dialect, [whole])

    def test_comments_pings_and_odd_framing_change_nothing(self) -> None:
        played = play(self.dialect, [self.recorded.dressed_stream])
        assert (played.text(), played.finish, played.reached_end) == (TEXT, "stop", True)

    def test_a_stream_that_ends_before_its_finish_is_not_complete(self) -> None:
        played = play(self.dialect, [self.recorded.truncated_stream])
        assert played.text()
        assert not played.is_complete

    def test_an_error_in_mid_stream_is_a_fault_and_no_output(self) -> None:
        with pytest.raises(UpstreamFault) as caught:
            play(self.dialect, [self.recorded.error_stream])
        assert not isinstance(caught.value, MalformedReply)
        assert caught.value.message

    @pytest.mark.parametrize("body", [b"", HTML, b'{"cut', b"[]", b'"text"', b"null", b"\xff"])
    def test_what_is_no_json_object_is_malformed(self, body: bytes) -> None:
        with pytest.raises(MalformedReply):
            self.dialect.reply(body, call())
        (said,) = self.dialect.decoder(call()).decode([body])
        assert isinstance(said, UnreadableEvent)

    def test_an_error_with_status_200_is_a_fault(self) -> None:
        for body, words in self.recorded.errors.values():
            with pytest.raises(UpstreamFault) as caught:
                self.dialect.reply(body, call())
            told = caught.value.message
            assert words in told or told.startswith("refuses the gateway itself")

    def test_a_request_goes_to_the_routes_address_and_model(self) -> None:
        request = self.dialect.request(call(max_tokens=7), route())
        body = orjson.loads(request.body)
        assert request.url == f"https://par.acme.example/v1{self.recorded.path}"
        assert (body["model"], body["max_tokens"]) == ("model-upstream", 7)
        assert "stream" not in body

    def test_a_streamed_request_says_so(self) -> None:
        assert orjson.loads(self.dialect.request(call(stream=True), route()).body)["stream"] is True

    def test_a_request_carries_the_credential_and_never_shows_it(self) -> None:
        request = self.dialect.request(call(), route())
        name, value = self.recorded.credential_header
        assert request.headers[name] == value.format(CREDENTIAL)
        assert CREDENTIAL not in repr(request)
        assert CREDENTIAL not in request.url
        assert CREDENTIAL.encode() not in request.body

    def test_a_provider_may_have_its_own_header_for_the_credential(self) -> None:
        provider = upstream(auth_header="api-key", auth_scheme="", extra_headers={"x-team": "7"})
        headers = self.dialect.request(call(), route(provider)).headers
        assert (headers["api-key"], headers["x-team"]) == (CREDENTIAL, "7")
        assert self.recorded.credential_header[0] not in headers

    def test_a_provider_without_credential_gets_none(self) -> None:
        headers = self.dialect.request(call(), route(upstream(credential=None))).headers
        assert self.recorded.credential_header[0] not in headers

    def test_the_call_is_not_changed_by_its_request(self) -> None:
        ours = call({"role": "user", "content": [{"type": "text", "text": "hi"}]}, temperature=0.5, stop="x")
        before = deepcopy(ours.body)
        self.dialect.request(ours, route())
        assert ours.body == before

    def test_fields_that_the_spec_does_not_name_go_as_they_came(self) -> None:
        unknown: dict[str, Any] = {"top_k": 2**63, "x_new": [{"a": None}]}
        ours = call(**unknown)
        self.dialect.check(ours, route())
        body = orjson.loads(self.dialect.request(ours, route()).body)
        assert {name: body[name] for name in unknown} == unknown

    def test_fields_that_move_price_place_or_provider_are_refused(self) -> None:
        everywhere = {"inference_geo", "provider", "models", "route", "web_search_options", "service_tier", "store"}
        assert everywhere <= self.recorded.refuses.keys()
        for name, value in self.recorded.refuses.items():
            with pytest.raises(InvalidRequest) as caught:
                self.dialect.check(call(**{name: value}), route())
            assert caught.value.param == name

    @pytest.mark.parametrize("field", [{"service_tier": "auto"}, {"service_tier": "default"}, {"store": False}])
    def test_fields_that_ask_for_the_usual_are_taken(self, field: dict[str, Any]) -> None:
        self.dialect.check(call(**field), route())

    def test_a_field_that_the_provider_refuses_is_left_out_if_it_changes_nothing(self) -> None:
        refusing = route(upstream(refused_parameters=frozenset({"temperature", "x_new", "user"})))
        usual = call(temperature=1, user="u1")
        self.dialect.check(usual, refusing)
        body = orjson.loads(self.dialect.request(usual, refusing).body)
        assert not {"temperature", "user"} & body.keys()
        for field in ({"temperature": 0.9}, {"x_new": 1}):
            with pytest.raises(InvalidRequest) as caught:
                self.dialect.check(call(**field), refusing)
            assert caught.value.param in field

    def test_a_body_that_cannot_be_written_is_the_clients_fault(self) -> None:
        deep: Any = []
        for _ in range(300):
            deep = [deep]
        with pytest.raises(InvalidRequest):
            self.dialect.request(call(x_deep=deep), route())
