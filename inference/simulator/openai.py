"""Chat and text completions as OpenAI's API speaks them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inference.simulator import usage
from inference.simulator.answers import Answer, ToolCall, answer
from inference.simulator.call import Call, Event, Json, Kind
from inference.simulator.logprobs import chat_logprobs, text_logprobs
from inference.simulator.questions import chat_question, text_questions

_FINISH = {"stop_sequence": "stop", "refusal": "stop"}
_DONE = Event(Kind.DONE, "[DONE]")


@dataclass(frozen=True, slots=True)
class _Piece:
    """One delta of one choice; `said` is the text that it carries, for the logprobs."""

    index: int
    delta: Json
    said: str = ""


class Chat:
    """`/chat/completions`."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    prefix = "chatcmpl-sim-"

    def answers(self, call: Call) -> tuple[list[Answer], int]:
        """Answer the conversation `n` times over; with the prompt's tokens."""
        question = chat_question(call.body)
        said = answer(question, call.behaviour, call.described())
        return [said] * _choices(call.body), question.prompt_tokens

    def choice(self, call: Call, index: int, said: Answer) -> Json:
        """Write one choice of a whole answer."""
        text = "".join(said.text)
        message: Json = {
            "role": "assistant",
            "content": None if said.refuses or said.tool_calls else text,
            "refusal": text if said.refuses else None,
        }
        if said.reasoning:
            message[str(call.behaviour.reasoning)] = "".join(said.reasoning)
        if said.tool_calls:
            message["tool_calls"] = [_tool_call(each, each.arguments) for each in said.tool_calls]
        if call.behaviour.extra_fields:
            message["sim_message"] = {"kept": True}
        if call.behaviour.content_blocks:
            message = _in_blocks(message, call)
        logprobs = chat_logprobs(said.text) if _wants_logprobs(call) else None
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": _finish(call, said)}

    def opening(self, index: int, said: Answer) -> Json | None:
        """Return the first delta of a choice, which has the role and says nothing."""
        return {"role": "assistant", "content": None if said.tool_calls else "", "refusal": None}

    def deltas(self, call: Call, index: int, said: Answer) -> Iterator[_Piece]:
        """Return the deltas of one choice that carry output."""
        for piece in said.reasoning:
            yield _Piece(index, {str(call.behaviour.reasoning): piece})
        for piece in said.text:
            yield _Piece(index, {"refusal" if said.refuses else "content": piece}, piece)
        for ordinal, each in enumerate(said.tool_calls):
            yield _Piece(index, {"tool_calls": [{"index": ordinal, **_tool_call(each, "")}]})
            for fragment in each.fragments:
                yield _Piece(index, {"tool_calls": [{"index": ordinal, "function": {"arguments": fragment}}]})

    def chunk_choice(self, call: Call, piece: _Piece, finish: str | None) -> Json:
        """Write one choice of a chunk."""
        delta = {**piece.delta, "sim_delta": True} if call.behaviour.extra_fields else piece.delta
        if call.behaviour.content_blocks:
            delta = _in_blocks(delta, call)
        logprobs = chat_logprobs([piece.said]) if piece.said and _wants_logprobs(call) else None
        return {"index": piece.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


class Text:
    """`/completions`: each prompt is answered `n` times over."""

    kind = chunk_kind = "text_completion"
    prefix = "cmpl-sim-"

    def answers(self, call: Call) -> tuple[list[Answer], int]:
        """Answer each prompt, in order."""
        questions = text_questions(call.body)
        said = [answer(question, call.behaviour, call.described()) for question in questions]
        repeated = [each for each in said for _ in range(_choices(call.body))]
        return repeated, sum(question.prompt_tokens for question in questions)

    def choice(self, call: Call, index: int, said: Answer) -> Json:
        """Write one choice of a whole answer."""
        logprobs = text_logprobs(said.text) if _wants_logprobs(call) else None
        text = "".join(said.text)
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": _finish(call, said)}

    def opening(self, index: int, said: Answer) -> Json | None:
        """Nothing goes before the first word."""
        return None

    def deltas(self, call: Call, index: int, said: Answer) -> Iterator[_Piece]:
        """Return the words of one choice."""
        for piece in said.text:
            yield _Piece(index, {"text": piece}, piece)

    def chunk_choice(self, call: Call, piece: _Piece, finish: str | None) -> Json:
        """Write one choice of a chunk."""
        logprobs = text_logprobs([piece.said]) if piece.said and _wants_logprobs(call) else None
        return {"text": piece.said, "index": piece.index, "logprobs": logprobs, "finish_reason": finish}


class Completions:
    """An endpoint that completes, whole or streamed, in the shape of chat or of text."""

    dialect = "openai"

    def __init__(self, shape: Chat | Text) -> None:
        self._shape = shape

    def complete(self, call: Call) -> Json:
        """Answer in one body."""
        said, prompt = self._shape.answers(call)
        whole = self._envelope(call, self._shape.kind)
        whole["choices"] = [self._choice(call, index, each) for index, each in enumerate(said)]
        counted = usage.openai(_tokens(said, prompt), call.behaviour)
        return whole if counted is None else {**whole, "usage": counted}

    def events(self, call: Call) -> Iterator[Event]:
        """Answer in events: roles, words by turns over the choices, finishes, usage, `[DONE]`."""
        said, prompt = self._shape.answers(call)
        chunks = _Chunks(call, self._shape, self._envelope(call, self._shape.chunk_kind), said, prompt)
        for index, each in enumerate(said):
            if (opening := self._shape.opening(index, each)) is not None:
                yield chunks.make(Kind.STRUCTURE, _Piece(index, opening))
        for piece in _by_turns(self._pieces(call, said)):
            yield chunks.make(Kind.OUTPUT, piece)
        for index, each in enumerate(said):
            yield chunks.finish(index, _finish(call, each), last=index == len(said) - 1)
        if (counted := chunks.usage()) is not None:
            yield counted
        yield _DONE

    def _pieces(self, call: Call, said: Sequence[Answer]) -> list[Iterator[_Piece]]:
        return [self._shape.deltas(call, index, each) for index, each in enumerate(said)]

    def _choice(self, call: Call, index: int, said: Answer) -> Json:
        choice = self._shape.choice(call, index, said)
        return {**choice, "sim_choice": "kept"} if call.behaviour.extra_fields else choice

    def _envelope(self, call: Call, kind: str) -> Json:
        envelope: Json = {
            "id": self._shape.prefix + call.identity,
            "object": kind,
            "created": call.created,
            "model": call.model,
            "system_fingerprint": "fp_simulated",
        }
        if call.behaviour.extra_fields:
            envelope["sim_answer"] = {"kept": True}
        return envelope


class _Chunks:
    """Makes the chunks of one stream, and counts for those that carry usage."""

    def __init__(self, call: Call, shape: Chat | Text, envelope: Json, said: Sequence[Answer], prompt: int) -> None:
        self._call, self._shape, self._envelope = call, shape, envelope
        self._tokens = _tokens(said, prompt)
        self._sent = 0
        options = call.body.get("stream_options")
        self._asked = isinstance(options, dict) and options.get("include_usage") is True

    def make(self, kind: Kind, piece: _Piece, finish: str | None = None) -> Event:
        """Make a chunk with one choice."""
        self._sent += kind is Kind.OUTPUT
        choice = self._shape.chunk_choice(self._call, piece, finish)
        if self._call.behaviour.extra_fields:
            choice["sim_choice"] = "kept"
        chunk = {**self._envelope, "choices": [choice]}
        if self._call.behaviour.usage_every_chunk:
            self._count(chunk, min(self._sent, self._tokens.completion))
        elif self._asked and not self._call.behaviour.no_usage:
            chunk["usage"] = None  # as OpenAI does on every chunk but the last
        return Event(kind, chunk)

    def finish(self, index: int, reason: str, *, last: bool) -> Event:
        """Make the chunk that ends a choice."""
        event = self.make(Kind.FINISH, _Piece(index, {}), reason)
        behaviour = self._call.behaviour
        if last and isinstance(event.data, dict) and (behaviour.usage_on_finish or behaviour.usage_every_chunk):
            self._count(event.data, self._tokens.completion)
        return event

    def usage(self) -> Event | None:
        """Make the chunk that carries usage alone, where the caller asked and it went nowhere else."""
        behaviour = self._call.behaviour
        elsewhere = behaviour.usage_on_finish or behaviour.usage_every_chunk
        counted = usage.openai(self._tokens, behaviour)
        if counted is None or elsewhere or not self._asked:
            return None
        return Event(Kind.USAGE, {**self._envelope, "choices": [], "usage": counted})

    def _count(self, chunk: Json, completion: int) -> None:
        tokens = usage.Tokens(self._tokens.prompt, completion, min(self._tokens.reasoning, completion))
        if (counted := usage.openai(tokens, self._call.behaviour)) is not None:
            chunk["usage"] = counted


def _tokens(said: Sequence[Answer], prompt: int) -> usage.Tokens:
    return usage.Tokens(prompt, sum(each.tokens for each in said), sum(each.reasoning_tokens for each in said))


def _finish(call: Call, said: Answer) -> str:
    return call.behaviour.finish or _FINISH.get(said.finish, said.finish)


def _tool_call(each: ToolCall, arguments: str) -> Json:
    return {
        "id": f"call_{each.identity}",
        "type": "function",
        "function": {"name": each.name, "arguments": arguments},
    }


def _in_blocks(said: Json, call: Call) -> Json:
    """Word reasoning and content as blocks, as Mistral's reasoning models do; content that is empty stays a string."""
    reasoning, content = str(call.behaviour.reasoning), said.get("content")
    blocks: list[Json] = []
    if said.get(reasoning):
        blocks.append({"type": "thinking", "thinking": [{"type": "text", "text": said[reasoning]}], "closed": False})
    if content:
        blocks.append({"type": "text", "text": content})
    others = {name: value for name, value in said.items() if name != reasoning}
    return {**others, "content": blocks} if blocks else said


def _by_turns(choices: Sequence[Iterator[_Piece]]) -> Iterator[_Piece]:
    """One piece of each choice after the other until all have ended."""
    left = list(choices)
    while left:
        still = []
        for pieces in left:
            if (piece := next(pieces, None)) is not None:
                yield piece
                still.append(pieces)
        left = still


def _wants_logprobs(call: Call) -> bool:
    return call.behaviour.logprobs or bool(call.body.get("logprobs"))


def _choices(body: Json) -> int:
    n = body.get("n")
    return n if isinstance(n, int) and n > 0 else 1
