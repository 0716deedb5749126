"""OpenAI's API: chat, text completions and embeddings, each with its usage.

`cached` and `cache-write` come on top of the words of the messages, so that they never contradict them.
"""

import base64
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import shake_128
from itertools import zip_longest

from simulator import signing
from simulator.answers import NOVEL, Answer, Tokens, ToolCall, answer
from simulator.behaviour import CACHE_HITS, Behaviour
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

_FINISH = {"stop_sequence": "stop", "refusal": "stop"}
_LOGPROB = -0.25
_DIMENSIONS = 8
_MAX_DIMENSIONS = 16_384
_HEARD = 300  # tokens of a prompt's audio


@dataclass(frozen=True, slots=True)
class _Piece:
    index: int
    delta: Json
    text: str = ""


class Chat:
    """`/chat/completions`."""

    dialect = "openai"
    kind, chunk_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl-sim-"

    def complete(self, call: Call) -> Json:
        """Answer in one body."""
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
        """Answer in events: roles, words by turns over the choices, finishes, usage, `[DONE]`."""
        behaviour = call.behaviour
        answers, prompt = self.answers(call)
        tokens = _tokens(answers, prompt)
        options = call.body.get("stream_options")
        wants_usage = isinstance(options, dict) and options.get("include_usage") is True and not behaviour.no_usage
        envelope = self._envelope(call, self.chunk_kind)

        def chunk(kind: Kind, piece: _Piece, reported: int | None, finish: str | None = None) -> Event:
            """A chunk with one choice, and with the usage so far where completion tokens are `reported`."""
            choice = {**self.chunk_choice(call, piece), "finish_reason": finish}
            data: Json = {**envelope, "choices": [choice]}
            if behaviour.extra_fields:
                choice["sim_choice"] = "kept"
            if finish is not None and behaviour.usage_in == "x_groq":
                data["x_groq"] = {"id": "req_sim", "usage": usage_of(tokens, call)}
            elif reported is not None and not behaviour.no_usage:
                data["usage"] = usage_of(Tokens(prompt, reported, min(tokens.reasoning, reported)), call)
            elif wants_usage:
                data["usage"] = None  # as OpenAI does on every chunk but the last
            return Event(kind, data)

        produced = 0 if behaviour.usage_every_chunk else None
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
            yield Event(Kind.USAGE, {**envelope, "choices": [], "usage": usage_of(tokens, call), **impact})
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
        """Answer the conversation `n` times over."""
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
            message["tool_calls"] = [
                {**_tool_call(each, each.arguments), **signing.of_call(call, ordinal, each)}
                for ordinal, each in enumerate(answered.tool_calls)
            ]
        message |= signing.of_text(call, text) | signing.details(call, "".join(answered.reasoning), answered.tool_calls)
        if call.behaviour.unknown_deltas:
            message |= {"sim_novel": "".join(NOVEL), "sim_steps": [{"index": 0, "said": "".join(NOVEL)}]}
        if call.behaviour.extra_fields:
            message["sim_message"] = {"kept": True}
        if call.behaviour.citations:
            message["annotations"] = [_citation(len(text))]
        if call.behaviour.content_blocks:
            message = _in_blocks(message, call)
        if call.behaviour.object_content:
            message["content"] = {"said": text}
        logprobs = self._logprobs(answered.text) if _wants_logprobs(call) else None
        said = {} if call.behaviour.filtered else {"message": message}
        return {"index": index, **said, "logprobs": logprobs, "finish_reason": _finish(call, answered)}

    def opening(self, answered: Answer) -> Json | None:
        """The role."""
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
        for ordinal, each in enumerate(answered.tool_calls):
            head = {"index": ordinal, **_tool_call(each, ""), **signing.of_call(call, ordinal, each)}
            encrypted = {} if ordinal else signing.details(call, "", answered.tool_calls)
            yield _Piece(index, {"tool_calls": [head], **encrypted})
            for fragment in each.fragments:
                yield _Piece(index, {"tool_calls": [{"index": ordinal, "function": {"arguments": fragment}}]})

    def chunk_choice(self, call: Call, piece: _Piece) -> Json:
        delta = {**piece.delta, "sim_delta": True} if call.behaviour.extra_fields else piece.delta
        if call.behaviour.content_blocks:
            delta = _in_blocks(delta, call)
        logprobs = self._logprobs([piece.text]) if piece.text and _wants_logprobs(call) else None
        return {"index": piece.index, "delta": delta, "logprobs": logprobs}

    def _logprobs(self, words: Sequence[str]) -> Json:
        content = [
            {"token": word, "logprob": _LOGPROB, "bytes": list(word.encode()), "top_logprobs": []} for word in words
        ]
        return {"content": content, "refusal": None}


def _citation(end: int) -> Json:
    page = {"url": "https://cited.example/page", "title": "A page", "start_index": 0, "end_index": end}
    return {"type": "url_citation", "url_citation": page}


class Text(Chat):
    """`/completions`."""

    kind, chunk_kind, prefix = "text_completion", "text_completion", "cmpl-sim-"

    def answers(self, call: Call) -> tuple[list[Answer], int]:
        """Answer each prompt `n` times over."""
        questions = text_questions(call.body)
        answers = [answer(each, call) for each in questions for _ in range(_choices(call.body))]
        return answers, sum(question.prompt_tokens for question in questions)

    def choice(self, call: Call, index: int, answered: Answer) -> Json:
        logprobs = self._logprobs(answered.text) if _wants_logprobs(call) else None
        text = "".join(answered.text)
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": _finish(call, answered)}

    def opening(self, answered: Answer) -> Json | None:
        return None

    def pieces(self, call: Call, index: int, answered: Answer) -> Iterator[_Piece]:
        for text in answered.text:
            yield _Piece(index, {"text": text}, text)

    def chunk_choice(self, call: Call, piece: _Piece) -> Json:
        logprobs = self._logprobs([piece.text]) if piece.text and _wants_logprobs(call) else None
        return {"text": piece.text, "index": piece.index, "logprobs": logprobs}

    def _logprobs(self, words: Sequence[str]) -> Json:
        return {
            "tokens": list(words),
            "token_logprobs": [_LOGPROB] * len(words),
            "top_logprobs": None,
            "text_offset": [sum(map(len, words[:index])) for index in range(len(words))],
        }


class Embeddings:
    """`/embeddings`: vectors of length one that follow from the text alone."""

    dialect = "openai"

    def complete(self, call: Call) -> Json:
        """Embed every input, in the format that was asked for."""
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
        """Refuse: there is no stream of embeddings."""
        raise RefusedError("Embeddings cannot be streamed.", "stream")


def vector(text: str, size: int) -> bytes:
    """The vector of a text, as little-endian 32-bit floats."""
    raw = struct.unpack(f"<{size}i", shake_128(text.encode()).digest(4 * size))
    length = math.hypot(*raw) or 1.0
    return struct.pack(f"<{size}f", *(value / length for value in raw))


def usage_of(tokens: Tokens, call: Call) -> Json | None:
    """The usage, truly or in contradiction, as the behaviour asks; None where the provider reports nothing."""
    behaviour = call.behaviour
    if behaviour.no_usage:
        return None
    written = behaviour.cache_write_5m + behaviour.cache_write_1h
    prompt = tokens.prompt + behaviour.cached + written
    usage: Json = {
        "prompt_tokens": prompt,
        "completion_tokens": tokens.completion - (tokens.reasoning if behaviour.reasoning_outside else 0),
        "total_tokens": prompt + tokens.completion,
        "prompt_tokens_details": {"cached_tokens": behaviour.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning, "audio_tokens": 0},
    }
    if written:
        usage["prompt_tokens_details"]["cache_write_tokens"] = written
    match behaviour.bad_usage:
        case "cached":
            usage["prompt_tokens_details"]["cached_tokens"] = prompt + 1000
        case "negative":
            usage["prompt_tokens"] = -1
        case "fraction":
            usage["prompt_tokens"] += 0.5
        case "total":
            usage["total_tokens"] += 1000
    return {**_shaped(usage, tokens, behaviour), **call.marked}


def _shaped(usage: Json, tokens: Tokens, behaviour: Behaviour) -> Json:
    match behaviour.usage_shape:
        case name if name in CACHE_HITS:
            del usage["prompt_tokens_details"]
            usage[name] = behaviour.cached
        case "thinking":
            usage["completion_tokens"] -= tokens.reasoning
            del usage["completion_tokens_details"]
        case "audio":
            usage["prompt_tokens_details"]["audio_tokens"] = _HEARD
            usage["total_tokens"] += _HEARD
        case "zero":
            usage |= dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
        case "no-completion":
            usage = {"prompt_tokens": usage["prompt_tokens"], "total_tokens": usage["prompt_tokens"]}
        case "total-alone":
            usage = {"total_tokens": usage["total_tokens"]}
    return usage


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
    return call.behaviour.finish or _FINISH.get(answered.finish, answered.finish)


def _tool_call(each: ToolCall, arguments: str) -> Json:
    function = {"name": each.name, "arguments": arguments}
    return {"id": f"call_{each.identity}", "type": "function", "function": function}


def _in_blocks(message: Json, call: Call) -> Json:
    """Reasoning and content as blocks, as Mistral's reasoning models send them; empty content stays a string."""
    reasoning, content = str(call.behaviour.reasoning), message.get("content")
    blocks: list[Json] = []
    if thinking := message.get(reasoning):
        blocks.append({"type": "thinking", "thinking": [{"type": "text", "text": thinking}], "closed": False})
    if content:
        blocks.append({"type": "text", "text": content})
    others = {name: value for name, value in message.items() if name != reasoning}
    return {**others, "content": blocks} if blocks else message


def _wants_logprobs(call: Call) -> bool:
    return call.behaviour.logprobs or bool(call.body.get("logprobs"))


def _choices(body: Json) -> int:
    n = body.get("n")
    return n if isinstance(n, int) and n > 0 else 1
