"""How DRF answers in the control plane: with JSON, whatever the Accept. Bodies are read by `ControlView.json_body`."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class AlwaysJson(BaseContentNegotiation):
    """The API has one representation, so there is nothing to negotiate."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        renderer = next(iter(renderers))
        return renderer, renderer.media_type


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
