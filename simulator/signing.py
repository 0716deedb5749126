"""Signs parts of a chat answer as Google and OpenRouter do, and checks that the next turn repeats the signatures."""

from collections.abc import Sequence
from hashlib import sha256

from simulator.answers import ToolCall
from simulator.call import Call, Json, RefusedError

UNCHECKED = "skip_thought_signature_validator"  # Google accepts this instead of a signature
FORMAT = "google-gemini-v1"


def check(call: Call) -> None:
    """Raises RefusedError for a conversation in which a signature is missing, wrong or in another place."""
    for message in call.body["messages"]:
        calls = message.get("tool_calls")
        match call.behaviour.signs:
            case "google" if calls:
                wanted = [_google(_signature(calls[0]["id"]))] + [None] * (len(calls) - 1)
                unchecked = [_google(UNCHECKED), *wanted[1:]]
                if [each.get("extra_content") for each in calls] not in (wanted, unchecked):
                    raise RefusedError(
                        "Function call is missing a thought_signature in functionCall parts.", "messages"
                    )
            case "google" if message.get("extra_content") not in (None, _google(_signature(message.get("content")))):
                raise RefusedError("Thought signature is not valid.", "messages")
            case "openrouter" if calls:
                *texts, encrypted = message.get("reasoning_details") or [None]
                if encrypted != _encrypted(calls[0]["id"], len(texts)):
                    raise RefusedError("Gemini models require reasoning details to be preserved.", "messages")


def of_call(call: Call, ordinal: int, tool_call: ToolCall) -> Json:
    """Returns the members that Google adds to a call. Of parallel calls it signs only the first."""
    if call.behaviour.signs != "google" or ordinal:
        return {}
    return {"extra_content": _google(_signature(f"call_{tool_call.identity}"))}


def of_text(call: Call, text: str) -> Json:
    """Returns the members that Google adds to a text; in a stream they come after it."""
    return {"extra_content": _google(_signature(text))} if call.behaviour.signs == "google" and text else {}


def details(call: Call, reasoning: str, tool_calls: Sequence[ToolCall] = ()) -> Json:
    """Returns the members that OpenRouter adds to reasoning, and to the calls that follow from it."""
    if call.behaviour.signs != "openrouter":
        return {}
    listed: list[Json] = []
    if reasoning:
        listed.append({"type": "reasoning.text", "text": reasoning, "format": FORMAT, "index": 0})
    if tool_calls:
        listed.append(_encrypted(f"call_{tool_calls[0].identity}", int(bool(call.behaviour.reasoning))))
    return {"reasoning_details": listed} if listed else {}


def _encrypted(call_id: str, index: int) -> Json:
    data = _signature(call_id)
    return {"type": "reasoning.encrypted", "data": data, "id": call_id, "format": FORMAT, "index": index}


def _google(signature: str) -> Json:
    return {"google": {"thought_signature": signature}}


def _signature(signed: object) -> str:
    return "sig-" + sha256(str(signed).encode(errors="surrogatepass")).hexdigest()[:32]
