"""DRF's ends of the wire for the control plane: JSON in whatever the Content-Type, JSON out whatever the Accept."""

from collections.abc import Iterable, Mapping
from typing import IO, Any

import orjson
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from .jsonbody import parse_object


class AlwaysJson(BaseContentNegotiation):
    """The API has one representation, so there is nothing to negotiate."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser:
        return next(iter(parsers))

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


class AnyTypeJsonParser(BaseParser):
    """A JSON object, whatever Content-Type the client put on it (docs/api.md#conventions)."""

    media_type = "*/*"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return parse_object(stream.read())


class OrjsonRenderer(BaseRenderer):
    """JSON by orjson. Decimals never get here: money leaves through `money.to_json`."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        return b"" if data is None else orjson.dumps(data)
