"""Estimates token counts when no upstream counted; the record then has the flag `usage_estimated`.

The estimate is one token for every four bytes of UTF-8, rounded up, and four for each message's framing: close for
English prose, high for other scripts. Images and audio are not estimated.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from typing import Any

from gateway.server.turns import pause

from .call import Call, Shape, content_of
from .dialects.base import encoded

BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
TOKENS_FOR_TOOLS = 500  # in the prompt by which the provider introduces tools to the model
TOKENS_OF_A_PICTURE = 1600  # the most that Anthropic bills for one picture
# An upper bound for the tokenizers in use: a token for each four letters of a word, each digit, each punctuation mark
# and each two bytes of another script, and one more at each pair of letters that is rare in their training data.
PIECES = re.compile(rb"[A-Z]?[a-z]{1,4}|[A-Z]{1,2}|[0-9]|[\x80-\xff]{1,2}|\n|[ \t\r]{2,4}|[^\sA-Za-z0-9\x80-\xff]")
COMMON_PAIRS = frozenset(
    (
        b"th he in er an re on at en nd ti es or te of ed is it al ar st to nt ng se ha as ou io le ve co me de hi "
        b"ri ro ic ne ea ra ce li ch ll be ma si om ur ca el ta la ns di fo ho pe ec pr no ct us ac ot il tr ly nc "
        b"et ut ss so rs un lo wa ge ie wh ee wi em ad ol rt po we na ul ni ts mo ow pa im mi ai sh ir su id os iv "
        b"ia am fi ci vi pl ig tu ev ld ry mp fe bl ab gh ty op wo sa ay ex ke fr oo av ag if ap gr od bo sp rd do "
        b"uc bu ei ov by rm ep tt oc fa ef cu rn sc gi da yo cr cl du ga qu ue ff ba ey ls va um pp ua up lu go ht "
        b"ru ug ds lt pi rc rr eg au ck ew mu br bi pt ak pu ui rg ib tl ny ki rk ys ob mm fu ph og ms ye ud mb ip "
        b"ub oi rl gu dr hr cc tw ft wn nu af hu nn eo vo rv nf xp gn sm fl iz ok nl my gl aw ju oa eq sy sl ps jo "
        b"lf nv je nk kn gs dy hy ze ks xt bs ik dd rp sk xi oe oy ws lv dl rf eu dg wr xa yi nm eb rb tm xc eh tc "
        b"gy hn az"
    ).split()
)
RARE_PAIRS = frozenset(
    pair for pair in product(range(ord("a"), ord("z") + 1), repeat=2) if bytes(pair) not in COMMON_PAIRS
)
# Scripts that are rare in training data, symbols and emoji: a token for each byte.
RARE_SCRIPTS = re.compile(
    rb"[\xc9-\xcf\xd2-\xd7\xdc-\xdf\xe1\xea\xee-\xf4][\x80-\xbf]+"
    rb"|\xe0[\xac-\xb7\xbc-\xbf][\x80-\xbf]|\xe2[\x81-\xbf][\x80-\xbf]"
)
BLOCK_BYTES = 16 * 1024  # counted before other requests get a turn
SAMPLES, SAMPLE_BYTES = 16, 1024


def tokens_in(byte_count: int) -> int:
    """Estimates the tokens in a text of this many UTF-8 bytes."""
    return -(-byte_count // BYTES_PER_TOKEN)


def prompt_tokens(call: Call) -> int:
    """Estimates the tokens of a request's messages and tools, prompt, or input. A token id counts as one.

    Reads only fields that the endpoint has checked, since any other may hold anything.
    """
    if call.shape in (Shape.CHAT, Shape.RESPONSES):
        return _chat_tokens(call.body)
    if call.shape == Shape.MESSAGES:
        return _message_tokens(call.body)
    return _input_tokens(call.body["prompt" if call.shape == Shape.COMPLETION else "input"])


def most_prompt_tokens(call: Call, *, roughly: bool = False) -> int:
    """Returns an upper bound of a Messages request's tokens, for clients that plan with the count.

    It holds for the tokenizers in use, except for the rarest Chinese characters. With `roughly`, a long text is
    extrapolated from samples.
    """
    # 1. Collect the texts.
    body = call.body
    texts = [encoded(body["tools"])] if body.get("tools") else []
    pictures = documents = 0
    for content in (body.get("system"), *(message["content"] for message in body["messages"])):
        for block in _every_block(content):
            kind = block.get("type")
            pictures += kind == "image"
            documents += len(encoded(block)) if kind == "document" else 0
            texts += [text.encode() for name in ("text", "thinking") if isinstance(text := block.get(name), str)]
            if block.get("input"):
                texts.append(encoded(block["input"]))
    # 2. Count their tokens.
    counted, size = 0, sum(map(len, texts))
    if roughly and size > SAMPLES * SAMPLE_BYTES:
        whole = b"".join(texts)
        texts = [whole[at : at + SAMPLE_BYTES] for at in range(0, size, -(-size // SAMPLES))]
    for text in texts:
        for start in range(0, len(text), BLOCK_BYTES):
            if start:
                pause()
            counted += _most_tokens(text[start : start + BLOCK_BYTES])
    counted = counted * size // (sum(map(len, texts)) or 1)
    # 3. Add what is not text.
    framing = TOKENS_PER_MESSAGE * 2 * (len(body["messages"]) + 1) + (TOKENS_FOR_TOOLS if body.get("tools") else 0)
    return counted + framing + TOKENS_OF_A_PICTURE * pictures + documents // BYTES_PER_TOKEN


def _most_tokens(text: bytes) -> int:
    rare = 0 if text.isascii() else sum(map(len, RARE_SCRIPTS.findall(text)))
    words = RARE_SCRIPTS.sub(b" ", text) if rare else text
    ends = sum(map(RARE_PAIRS.__contains__, pairwise(words.lower())))
    return rare + len(PIECES.findall(words)) + ends


def _every_block(content: Any) -> Iterator[Mapping[str, Any]]:
    """Yields all blocks of a content, including those within tool results."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            yield block
            if block.get("type") == "tool_result":
                yield from _every_block(block.get("content"))


def _chat_tokens(body: Mapping[str, Any]) -> int:
    messages, tools = body["messages"], body.get("tools")
    byte_count, calls = len(encoded(tools)) if tools else 0, []
    for message in messages:
        content = message.get("content")
        if content and type(content) is str:
            byte_count += len(content) if content.isascii() else len(content.encode())
        elif content or "refusal" in message:
            byte_count += _text_bytes(content_of(message))
        if tool_calls := message.get("tool_calls"):
            calls.append(tool_calls)
    byte_count += len(encoded(calls)) if calls else 0
    return tokens_in(byte_count) + TOKENS_PER_MESSAGE * len(messages)


def _message_tokens(body: Mapping[str, Any]) -> int:
    messages, tools = body["messages"], body.get("tools")
    byte_count = _block_bytes(body.get("system")) + sum(_block_bytes(message["content"]) for message in messages)
    return tokens_in(byte_count + (len(encoded(tools)) if tools else 0)) + TOKENS_PER_MESSAGE * len(messages)


def _block_bytes(content: Any) -> int:
    """Counts the bytes of texts, thoughts, tool calls and results in Anthropic's blocks."""
    if not isinstance(content, list):
        return _text_bytes(content)
    return _text_bytes(content) + sum(
        _text_bytes(block.get("thinking")) + _block_bytes(block.get("content")) + _input_bytes(block.get("input"))
        for block in content
        if isinstance(block, dict) and block.get("type") != "text"
    )


def _input_bytes(given: Any) -> int:
    return len(encoded(given)) if given else 0


def _input_tokens(value: Any) -> int:
    if isinstance(value, list):
        return sum(_input_tokens(item) for item in value)
    return tokens_in(len(value.encode())) if isinstance(value, str) else 1


def _text_bytes(content: Any) -> int:
    if isinstance(content, str):
        return len(content) if content.isascii() else len(content.encode())
    if isinstance(content, list):
        texts = (block.get("text") for block in content if isinstance(block, dict))
        return sum(len(text.encode()) for text in texts if isinstance(text, str))
    return 0
