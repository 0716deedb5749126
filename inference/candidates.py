"""What automatic routing needs to know of a request: which routes can take it, and which of equal ones it stays on."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from aliases.resolve import Purpose
from catalogue import routing
from catalogue.routes import Route
from gateway.errors import InvalidRequest

from .admission import Payer
from .call import Call
from .dialects import DIALECTS
from .dialects.common import encoded
from .modality import FITTING, NAMES, Side, upstream_side

IMAGES = frozenset({"image_url", "image", "input_image"})
PROMPT_START = 1000  # characters of a text completion's prompt that tell one conversation from another


def purpose_of(call: Call, payer: Payer) -> Purpose:
    """What the call wants a route for."""
    return Purpose(
        FITTING[call.endpoint], NAMES[call.endpoint], partial(refusals, call), partial(conversation, call, payer)
    )


def side_for(call: Call, route: Route) -> Side:
    """The call in the upstream's shape. Raises InvalidRequest for what the route cannot take."""
    routing.require_modality(route, FITTING[call.endpoint], NAMES[call.endpoint])
    if call.stream and not route.can_stream:
        raise InvalidRequest.of_field("stream", f"must be false: model {route.id!r} cannot stream.")
    side = upstream_side(call, route)
    DIALECTS[route.upstream.dialect].check(side.call, route)
    return side


def refusals(call: Call, routes: Sequence[Route]) -> dict[int, InvalidRequest]:
    """Why routes cannot take the call, by region id; those that can are not in it.

    Beyond what any route is asked, a model that is known to lack tools or images is passed by, and the call has to have
    a form in the dialect: that takes a translation, made once for all regions of an offer.
    """
    wants_tools = bool(call.body.get("tools") or call.body.get("functions"))
    shows_images = any(block["type"] in IMAGES for block in _blocks(call.body.get("messages", ())))
    found: dict[int, InvalidRequest] = {}
    translated: set[str] = set()
    for route in routes:
        try:
            side = side_for(call, route)
            if wants_tools and not route.can_call_functions:
                raise InvalidRequest.of_field("tools", f"must be absent: model {route.id!r} takes none.")
            if shows_images and not route.can_take_images:
                raise InvalidRequest.of_field("messages", f"must be without images: model {route.id!r} takes none.")
            if route.upstream.slug not in translated:
                DIALECTS[route.upstream.dialect].check_form(side.call, route)
                translated.add(route.upstream.slug)
        except InvalidRequest as refusal:
            found[route.region_id] = refusal
    return found


def conversation(call: Call, payer: Payer) -> bytes:
    """What a prompt cache belongs to, as 32 bytes that are the same in every process: the key, with the client's own
    `prompt_cache_key`, else with the beginning of what is said."""
    body = call.body
    said: dict[str, Any]
    if body.get("prompt_cache_key"):
        said = {"prompt_cache_key": body["prompt_cache_key"]}
    elif "messages" in body:
        said = {"messages": list(_beginning(body["messages"]))}
    else:
        said = {"prompt": body["prompt"][:PROMPT_START]}
    return blake2b(payer.key_id.bytes + encoded(said), digest_size=32).digest()


def _blocks(messages: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for message in messages:
        if isinstance(content := message.get("content"), list):
            yield from content


def _beginning(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Roles and contents up to the first that a user says.

    Without the marks of caching, which clients move on with each turn: a text that loses its mark may become a string.
    """
    for message in messages:
        content = message.get("content") or []
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        bare = [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]
        yield message["role"], bare
        if message["role"] == "user":
            return
