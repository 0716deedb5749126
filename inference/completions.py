"""The conductor: admit, dispatch, deliver, settle (docs/architecture.md#the-path-of-a-completion)."""

from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from catalogue import health
from catalogue.pricing import ContradictoryUsage, Usage
from catalogue.routes import Route
from gateway.errors import BILLED_ONCE_AT_MOST
from gateway.steps import step

from .admission import Payer
from .admitting import admit
from .aggregate import Aggregate
from .answers import chat_answer, output_bytes, text_answer
from .call import Call, Endpoint
from .chat_chunks import ChatChunks
from .chunks import Chunks
from .dialects import DIALECTS
from .dialects.base import Reply
from .dispatch import Dispatched, dispatch
from .embeddings import embedding_answer, input_count
from .failover import with_failover
from .failures import refusal
from .modality import Side
from .plain_chunks import PlainChunk
from .reader import StreamReader
from .records import Admission, Ending, Outcome
from .settling import settle
from .stream import Metered
from .text_chunks import TextChunks
from .upstream.faults import UpstreamFault
from .watch import Client

CHUNKS: dict[Endpoint, type[Chunks]] = {Endpoint.CHAT: ChatChunks, Endpoint.COMPLETION: TextChunks}


@dataclass(frozen=True, slots=True)
class Answer:
    """A settled whole answer. `adjusted` names the parameters that the upstream did not get as they were sent."""

    generation_id: str
    body: dict[str, Any]
    adjusted: tuple[str, ...]


def complete(call: Call, payer: Payer, client: Client) -> Answer:
    """A whole answer, settled before it is returned. Raises what `admit` and the upstream refuse, and ClientLeft."""
    return with_failover(*admit(call, payer), lambda admission, side: _complete(admission, side, client))


def stream(call: Call, payer: Payer, client: Client) -> Metered:
    """A stream that has its first output. Raises as `complete`."""
    return with_failover(*admit(call, payer), lambda admission, side: _stream(admission, side, client))


def _complete(admission: Admission, side: Side, client: Client) -> Answer:
    is_long = may_be_long(side.call, admission.route)
    aggregated = is_long and may_be_streamed(side.call, admission.route)
    asked = replace(side.call, stream=aggregated)
    dispatched = dispatch(admission, asked, client, comes_at_once=is_long and not aggregated)
    try:
        if aggregated and dispatched.upstream.content_type != "application/json":
            answer, outcome = _aggregated(admission, side, dispatched)
        else:
            answer, outcome = _whole(admission, side, dispatched)
    except UpstreamFault as error:
        dispatched.note(failed=health.is_failure(error.status))
        raise refusal(error, admission) from error
    finally:
        dispatched.close()
    dispatched.note(failed=False)
    with step("settling the charge", BILLED_ONCE_AT_MOST):
        report = settle(admission, outcome)
    if outcome.ending == Ending.COST_UNRESOLVABLE:
        raise refusal(ContradictoryUsage(), admission, record=admission.public_id)
    return Answer(admission.public_id, answer | report, dispatched.adjusted)


def _stream(admission: Admission, side: Side, client: Client) -> Metered:
    dispatched = dispatch(admission, side.call, client)
    _require_stream(admission, side, dispatched)
    return Metered(admission, dispatched, _reader(admission, side, dispatched)).primed()


def _require_stream(admission: Admission, side: Side, dispatched: Dispatched) -> None:
    """Refuses a whole JSON answer to a stream request: an error with status 200, above all, which is quoted."""
    if dispatched.upstream.content_type != "application/json":
        return
    try:
        DIALECTS[admission.route.upstream.dialect].reply(dispatched.upstream.read_all(), side.call)
        raise UpstreamFault("answered a stream request with a whole answer")
    except (UpstreamFault, ContradictoryUsage) as error:
        dispatched.note(failed=health.is_failure(getattr(error, "status", None)))
        raise refusal(error, admission) from error
    finally:
        dispatched.close()


def may_be_long(call: Call, route: Route) -> bool:
    """Whether a whole answer could outlast the first-byte budget."""
    if call.endpoint == Endpoint.EMBEDDING:
        return False
    cap = call.max_tokens or route.max_output_tokens
    return cap is None or cap * call.choices > settings.GATEWAY_AGGREGATE_OVER_TOKENS


def may_be_streamed(call: Call, route: Route) -> bool:
    """Whether a whole answer loses nothing where it is streamed and put together: neither the usage that it is billed
    by, nor what no stream carries (speech, the best of several)."""
    if not (route.can_stream and route.aggregate and route.upstream.stream_options):
        return False
    modalities = call.body.get("modalities")
    speaks = "audio" in call.body or (isinstance(modalities, list) and "audio" in modalities)
    return not speaks and call.body.get("best_of", 1) == 1


def _reader(admission: Admission, side: Side, dispatched: Dispatched) -> StreamReader:
    decoder = DIALECTS[admission.route.upstream.dialect].decoder(side.call)
    chunks = CHUNKS[admission.call.endpoint](
        id=admission.public_id,
        created=admission.created,
        model=admission.route.id,
        choices=admission.call.choices,
    )
    return StreamReader(dispatched.upstream, side.decoder(decoder), chunks)


def _aggregated(admission: Admission, side: Side, dispatched: Dispatched) -> tuple[dict[str, Any], Outcome]:
    """Reads a stream to its end and puts the answer together. Contradictory usage leaves it empty."""
    reader, whole = _reader(admission, side, dispatched), Aggregate(admission.call.endpoint)
    try:
        while reader.ending is None:
            reader.advance()
            for said in reader.take():
                if isinstance(said, PlainChunk):
                    whole.add_plain(said)
                else:
                    whole.add(said.chunk)
    except ContradictoryUsage:
        return {}, reader.outcome(Ending.COST_UNRESOLVABLE)
    if reader.ending != Ending.FINISHED:
        raise UpstreamFault("ended its answer without finishing it")
    return _in_shape(admission, whole.answer() | reader.chunks.unsent), reader.outcome(Ending.FINISHED)


def _whole(admission: Admission, side: Side, dispatched: Dispatched) -> tuple[dict[str, Any], Outcome]:
    """Reads a whole answer. Contradictory usage leaves it empty."""
    upstream = dispatched.upstream
    first = upstream.read()
    upstream.deadlines.whole_answer()
    body = first + upstream.read_all() if first else first
    try:
        reply = DIALECTS[admission.route.upstream.dialect].reply(body, side.call)
    except ContradictoryUsage as error:
        unpriced = {} if error.answer is None else _in_shape(admission, side.answer(error.answer))
        contradictory = Outcome(
            Ending.COST_UNRESOLVABLE, text_bytes=_delivered_bytes(unpriced), reported=error.reported
        )
        return {}, contradictory
    answer = _in_shape(admission, side.answer(reply.body))
    outcome = Outcome(
        Ending.FINISHED,
        _billed(admission, reply),
        reply.prompt_usage,
        text_bytes=_delivered_bytes(answer),
        reported=reply.reported,
    )
    return answer, outcome


def _billed(admission: Admission, reply: Reply) -> Usage | None:
    """Only the input of an embedding is billed, whatever else an upstream counts."""
    if reply.usage is None or admission.call.endpoint != Endpoint.EMBEDDING:
        return reply.usage
    return replace(reply.usage, completion=0)


def _delivered_bytes(answer: dict[str, Any]) -> int:
    return output_bytes(answer) if "choices" in answer else 0


def _in_shape(admission: Admission, answer: dict[str, Any]) -> dict[str, Any]:
    """The client's shape of an answer, with what the gateway owns in it."""
    if admission.call.endpoint == Endpoint.EMBEDDING:
        as_base64 = admission.call.body.get("encoding_format") == "base64"
        inputs = input_count(admission.call.body["input"])
        return embedding_answer(answer, model=admission.route.id, as_base64=as_base64, inputs=inputs)
    shaped = chat_answer if admission.call.endpoint == Endpoint.CHAT else text_answer
    return shaped(answer, id=admission.public_id, created=admission.created, model=admission.route.id)
