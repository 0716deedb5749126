"""Answers OpenAI's API: chat, text completions and embeddings."""

import base64
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import shake_128
from itertools import zip_longest

from simulator import calling, signing
from simulator.answers import NOVEL, Answer, Tokens, answer
from simulator.behaviour import EARLY_USAGES, Behaviour
from simulator.call import (
    Call,
    Event,
    Json,
    Kind,
    RefusedError,
    chat_question,
    count_tokens,
    embedded_texts,
    text_questions,
)
from simulator.usage import usage_of

_FINISH = {"stop_sequence": "stop", "refusal": "stop"}
_LOGPROB = -0.25
_DIMENSIONS = 8
_MAX_DIMENSIONS = 16_384
_MOST_CHOICES = 128


@dataclass(frozen=True, slots=True)
class _Piece:
    index: int
    delta: Json
    text: str = ""


class Chat:
    """Answers `/chat/completions`."""

    dialect = "openai"
    kind, chunk_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-sim-"

    def complete(self, call: Call) -> Json:
        """Answers in one body."""
        answers, prompt = self.answers(call)
        choices = [self.choice(call, index, each) for index, each in enumerate(answers)]
        if call.behaviour.extra_fields:
            choices = [{**choice, "sim_choice": "kept"} for choice in choices]
        usage = usage_of(_tokens(answers, prompt), call)
        if call.behaviour.usage_in == "x_groq":
            return {**self._envelope(call, self.kind), "choices": choices, "x_groq": {"usage": usage}}
        reports = {**({"usage": usage} if usage else {}), **_energy(call.behaviour)}
        return {**self._envelope(call, self.kind), "choices": choices, **reports}

    def events(self, call: Call) -> Iterator[Event]:
        """Answers in events: roles, words of the choices in turns, finishes, usage, `[DONE]`."""
        behaviour = call.behaviour
        answers, prompt = self.answers(call)
        tokens = _tokens(answers, prompt)
        options = call.body.get("stream_options")
        wants_usage = isinstance(options, dict) and options.get("include_usage") is True and not behaviour.no_usage
        envelope = self._envelope(call, self.chunk_kind)

        def chunk(kind: Kind, piece: _Piece, reported: int | None, finish: str | None = None) -> Event:
            """Makes a chunk with one choice, and with the usage so far if completion tokens are `reported`."""
            is_last = kind is Kind.FINISH and piece.index == len(answers) - 1
            if kind is Kind.OUTPUT and behaviour.finish_every_chunk:
                finish = _finish(call, answers[piece.index])
            choice = {**self.chunk_choice(call, piece), "finish_reason": finish}
            if behaviour.message_for_delta and "delta" in choice:
                choice["message"] = choice.pop("delta")
            if kind is Kind.FINISH:
                choice |= _of_finish(call, answers[piece.index])
            data: Json = {**envelope, "choices": [choice]}
            if behaviour.extra_fields:
                choice["sim_choice"] = "kept"
            if is_last and behaviour.usage_in == "choice":
                choice["usage"] = usage_of(tokens, call)
            if kind is Kind.FINISH and behaviour.usage_in == "x_groq":
                data["x_groq"] = {"id": "req_sim", "usage": usage_of(tokens, call)}
            elif reported is not None and not behaviour.no_usage:
                data["usage"] = usage_of(Tokens(prompt, reported, min(tokens.reasoning, reported)), call)
            elif wants_usage:
                data["usage"] = None  # as OpenAI does on every chunk but the last
            return Event(kind, data)

        produced = 0 if behaviour.usage_every_chunk or behaviour.usage_shape in EARLY_USAGES else None
        for index, each in enumerate(answers):
            if (opening := self.opening(each)) is not None:
                yield chunk(Kind.STRUCTURE, _Piece(index, opening), produced)
        turns = zip_longest(*(self.pieces(call, index, each) for index, each in enumerate(answers)))
        for piece in (piece for turn in turns for piece in turn if piece is not None):
            produced = None if produced is None else min(produced + 1, tokens.completion)
            yield chunk(Kind.OUTPUT, piece, produced)
        for index, each in enumerate(answers):
            is_last = index == len(answers) - 1
            reported = tokens.completion if is_last and _reports_on_finish(behaviour) else produced
            if not behaviour.no_finish:
                yield chunk(Kind.FINISH, _Piece(index, {}), reported, _finish(call, each))
        if behaviour.usage_in == "error":
            error = {"code": 400, "message": "Token limit reached"}
            last = {"choices": [{**self.chunk_choice(call, _Piece(0, {})), "finish_reason": None}]}
            yield Event(Kind.USAGE, {**envelope, **last, "error": error, "usage": usage_of(tokens, call)})
        elif not behaviour.usage_in and wants_usage and not _reports_on_finish(behaviour):
            impact = {name: value for name, value in _energy(behaviour).items() if name == "impact"}
            usage = usage_of(tokens, call, ends_stream=True)
            yield Event(Kind.USAGE, {**envelope, "choices": [], "usage": usage, **impact})
        yield Event(Kind.DONE, "[DONE]")

    def _envelope(self, call: Call, kind: str) -> Json:
        return {
            "id": self.prefix + call.identity,
            "object": kind,
            "created": call.created,
            "model": call.model,
            "system_fingerprint": "fp_simulated",
            **({"sim_answer": {"kept": True}} if call.behaviour.extra_fields else {}),
        }

    def answers(self, call: Call) -> tuple[list[Answer], int]:
        """Answers the conversation `n` times."""
        question = chat_question(call.body)
        signing.check(call)
        return [answer(question, call)] * (_choices(call.body) + call.behaviour.more_choices), question.prompt_tokens

    def choice(self, call: Call, index: int, answered: Answer) -> Json:
        text = "".join(answered.text)
        message: Json = {
            "role": "assistant",
            "content": None if answered.refuses or answered.tool_calls else text,
            "refusal": text if answered.refuses else None,
        }
        if answered.reasoning:
            message[str(call.behaviour.reasoning)] = "".join(answered.reasoning)
        if answered.tool_calls:
            message["tool_calls"] = calling.whole(call, answered.tool_calls)
        message |= signing.of_text(call, text) | signing.details(call, "".join(answered.reasoning), answered.tool_calls)
        if call.behaviour.unknown_deltas:
            message |= {"sim_novel": "".join(NOVEL), "sim_steps": [{"index": 0, "said": "".join(NOVEL)}]}
        if call.behaviour.extra_fields:
            message["sim_message"] = {"kept": True}
        lists = [
            *([{"annotations": [_citation(len(text))]}] if call.behaviour.citations else ()),
            *_lists(call.behaviour),
        ]
        for name, items in ((name, items) for each in lists for name, items in each.items()):
            message.setdefault(name, []).extend(items)
        if call.behaviour.content_blocks or call.behaviour.reasoning_parts:
            message = _in_blocks(message, call)
        if call.behaviour.object_content:
            message["content"] = {"said": text}
        logprobs = self._logprobs(call, answered.text) if _wants_logprobs(call) else None
        if call.behaviour.choice_error:
            message["content"] = None
        said = {} if call.behaviour.filtered else {"delta" if call.behaviour.delta_for_message else "message": message}
        finish = {"finish_reason": _finish(call, answered), **_of_finish(call, answered)}
        return {"index": index, **said, "logprobs": logprobs, **finish}

    def opening(self, answered: Answer) -> Json | None:
        """Returns the first delta, which has the role; None if there is none."""
        return {"role": "assistant", "content": None if answered.tool_calls else "", "refusal": None}

    def pieces(self, call: Call, index: int, answered: Answer) -> Iterator[_Piece]:
        if call.behaviour.unknown_deltas:
            for text in NOVEL:
                yield _Piece(index, {"sim_novel": text, "sim_steps": [{"index": 0, "said": text}]})
        if call.behaviour.filtered:
            return
        for text in answered.reasoning:
            yield _Piece(index, {str(call.behaviour.reasoning): text, **signing.details(call, text)})
        for text in answered.text:
            yield _Piece(index, {"refusal" if answered.refuses else "content": text}, text)
        if signed := signing.of_text(call, "".join(answered.text)):
            yield _Piece(index, {"content": "", **signed})
        if call.behaviour.citations:
            yield _Piece(index, {"annotations": [_citation(len("".join(answered.text)))]})
        for listed in _lists(call.behaviour):
            yield _Piece(index, listed)
        for position, fragments in enumerate(calling.streamed(call, answered.tool_calls)):
            encrypted = {} if position else signing.details(call, "", answered.tool_calls)
            yield _Piece(index, {"tool_calls": fragments, **encrypted})

    def chunk_choice(self, call: Call, piece: _Piece) -> Json:
        delta = {**piece.delta, "sim_delta": True} if call.behaviour.extra_fields else piece.delta
        if call.behaviour.content_blocks or call.behaviour.reasoning_parts:
            delta = _in_blocks(delta, call)
        logprobs = self._logprobs(call, [piece.text]) if piece.text and _wants_logprobs(call) else None
        return {"index": piece.index, "delta": delta, "logprobs": logprobs}

    def _logprobs(self, call: Call, words: Sequence[str]) -> Json:
        content = [
            {
                "token": word,
                "logprob": _logprob(call),
                "top_logprobs": [],
                "bytes": list(word.encode(errors="surrogatepass")),
            }
            for word in words
        ]
        return {"content": content, "refusal": None}


def _citation(end: int, path: object = "page") -> Json:
    page = {"url": f"https://cited.example/{path}", "title": "A page", "start_index": 0, "end_index": end}
    return {"type": "url_citation", "url_citation": page}


def _lists(behaviour: Behaviour) -> Iterator[Json]:
    """Yields the lists that come one after the other, each with one item."""
    for number in range(behaviour.lists):
        yield {"annotations": [_citation(1, number)]}
        yield {"images": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{number:04}"}}]}
        yield {"reasoning_details": [{"type": "reasoning.summary", "summary": f"Step {number}."}]}
    if behaviour.mixed_details:
        yield {"reasoning_details": [{"index": 0, "type": "reasoning.summary", "summary": "Step."}]}
        yield {"reasoning_details": [{"index": 0, "type": "reasoning.encrypted", "data": "c2VjcmV0"}]}


class Text(Chat):
    """Answers `/completions`."""

    kind, chunk_kind, prefix = "text_completion", "text_completion", "cmpl-sim-"

    def answers(self, call: Call) -> tuple[list[Answer], int]:
        """Answers each prompt `n` times."""
        questions = text_questions(call.body)
        answers = [answer(each, call) for each in questions for _ in range(_choices(call.body))]
        return answers, sum(question.prompt_tokens for question in questions)

    def choice(self, call: Call, index: int, answered: Answer) -> Json:
        logprobs = self._logprobs(call, answered.text) if _wants_logprobs(call) else None
        text = "".join(answered.text)
        finish = {"finish_reason": _finish(call, answered), **_of_finish(call, answered)}
        return {"text": text, "index": index, "logprobs": logprobs, **finish}

    def opening(self, answered: Answer) -> Json | None:
        return None

    def pieces(self, call: Call, index: int, answered: Answer) -> Iterator[_Piece]:
        for text in answered.text:
            yield _Piece(index, {"text": text}, text)

    def chunk_choice(self, call: Call, piece: _Piece) -> Json:
        logprobs = self._logprobs(call, [piece.text]) if piece.text and _wants_logprobs(call) else None
        return {"text": piece.text, "index": piece.index, "logprobs": logprobs}

    def _logprobs(self, call: Call, words: Sequence[str]) -> Json:
        return {
            "tokens": list(words),
            "token_logprobs": [_logprob(call)] * len(words),
            "top_logprobs": None,
            "text_offset": [sum(map(len, words[:index])) for index in range(len(words))],
        }


class Embeddings:
    """Answers `/embeddings` with vectors of length one that depend on the text only."""

    dialect = "openai"

    def complete(self, call: Call) -> Json:
        """Embeds every input in the requested format."""
        texts, behaviour = embedded_texts(call.body), call.behaviour
        size = call.body.get("dimensions") or _DIMENSIONS
        if not isinstance(size, int) or not 0 < size <= _MAX_DIMENSIONS:
            raise RefusedError("Invalid 'dimensions'.", "dimensions")
        in_base64 = call.body.get("encoding_format") == "base64" and not behaviour.ignores_format
        data = []
        for index, text in enumerate(texts):
            packed = vector(text, size)
            if behaviour.int8:
                packed = bytes(round(127 * value) & 255 for value in struct.unpack(f"<{size}f", packed))
            is_text = in_base64 or behaviour.int8
            embedding = base64.b64encode(packed).decode() if is_text else list(struct.unpack(f"<{size}f", packed))
            data.append({"object": "embedding", "index": index, "embedding": embedding})
        answered: Json = {"object": "list", "data": data, "model": call.model}
        if usage := usage_of(Tokens(sum(map(count_tokens, texts)), 0), call):
            counted = {name: usage[name] for name in ("prompt_tokens", "total_tokens") if name in usage}
            answered["usage"] = {**counted, **call.marked}
        if behaviour.extra_fields:
            answered["sim_answer"] = {"kept": True}
        return {**answered, "received": call.received} if behaviour.describe else answered

    def events(self, call: Call) -> Iterator[Event]:
        """Raises RefusedError, since embeddings cannot be streamed."""
        raise RefusedError("Embeddings cannot be streamed.", "stream")


def vector(text: str, size: int) -> bytes:
    """Returns the vector of a text as little-endian 32-bit floats."""
    raw = struct.unpack(f"<{size}i", shake_128(text.encode()).digest(4 * size))
    length = math.hypot(*raw) or 1.0
    return struct.pack(f"<{size}f", *(value / length for value in raw))


def _energy(behaviour: Behaviour) -> Json:
    figures: Json = {}
    if behaviour.energy_joules:
        figures["energy"] = {"energy_joules": behaviour.energy_joules, "attribution_method": "prorated"}
    if behaviour.impact_wms:
        figures["impact"] = {"version": "20250922", "energy": {"total": behaviour.impact_wms, "unit": "Wms"}}
    return figures


def _tokens(answers: Sequence[Answer], prompt: int) -> Tokens:
    return Tokens(prompt, sum(each.tokens for each in answers), sum(len(each.reasoning) for each in answers))


def _reports_on_finish(behaviour: Behaviour) -> bool:
    return behaviour.usage_on_finish or behaviour.usage_every_chunk


def _finish(call: Call, answered: Answer) -> str:
    if call.behaviour.filtered:
        return "content_filter"
    if call.behaviour.choice_error:
        return "error"
    return call.behaviour.finish or _FINISH.get(answered.finish, answered.finish)


def _of_finish(call: Call, answered: Answer) -> Json:
    """Returns the members of a choice that describe its finish beyond `finish_reason`."""
    error = {"error": {"code": 502, "message": "Upstream error."}} if call.behaviour.choice_error else {}
    return {**error, call.behaviour.stop_in: answered.stop_sequence} if call.behaviour.stop_in else error


def _in_blocks(message: Json, call: Call) -> Json:
    """Writes reasoning and content as blocks, as the reasoning models of Mistral and Databricks do.

    Empty content stays a string.
    """
    reasoning, content = str(call.behaviour.reasoning), message.get("content")
    blocks: list[Json] = []
    if thinking := message.get(reasoning):
        if call.behaviour.reasoning_parts:
            blocks.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": thinking}]})
        else:
            blocks.append({"type": "thinking", "thinking": [{"type": "text", "text": thinking}], "closed": False})
    if content:
        blocks.append({"type": "text", "text": content})
    others = {name: value for name, value in message.items() if name != reasoning}
    return {**others, "content": blocks} if blocks else message


def _logprob(call: Call) -> float:
    return math.nan if call.behaviour.not_finite else _LOGPROB


def _wants_logprobs(call: Call) -> bool:
    return call.behaviour.logprobs or call.behaviour.not_finite or bool(call.body.get("logprobs"))


def _choices(body: Json) -> int:
    n = body.get("n")
    if isinstance(n, int) and n > _MOST_CHOICES:
        raise RefusedError(f"Invalid 'n': {n} is above {_MOST_CHOICES}.", "n", "integer_above_max_value")
    return n if isinstance(n, int) and n > 0 else 1
