"""Log probabilities in OpenAI's two shapes; every word is as likely as the next."""

from collections.abc import Sequence

from inference.simulator.call import Json

_LOGPROB = -0.25


def chat_logprobs(words: Sequence[str]) -> Json:
    """Write those of chat, with each token's bytes."""
    tokens = [{"token": word, "logprob": _LOGPROB, "bytes": list(word.encode()), "top_logprobs": []} for word in words]
    return {"content": tokens, "refusal": None}


def text_logprobs(words: Sequence[str]) -> Json:
    """Write those of a text completion; the offsets are within these words."""
    offsets = [sum(map(len, words[:index])) for index in range(len(words))]
    return {
        "tokens": list(words),
        "token_logprobs": [_LOGPROB] * len(words),
        "top_logprobs": None,
        "text_offset": offsets,
    }
