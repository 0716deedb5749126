"""`GET /v1/models` and `GET /v1/models/{model}`."""

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from gateway.control_view import ControlView
from gateway.errors import ApiError, NotFound

from . import listing, model_ids, snapshot


class Models(ControlView):
    """What can be served now."""

    def get(self, _request: Request) -> Response:
        """`{object: list, data: [ModelInfo]}`."""
        models = listing.list_models(snapshot.current(), timezone.now().date())
        return Response({"object": "list", "data": models})


class Model(ControlView):
    """One of them, by an id that holds slashes."""

    def get(self, _request: Request, model_id: str) -> Response:
        """A ModelInfo. Whatever is not listed is 404, ids of the wrong form included."""
        try:
            wanted = model_ids.parse(model_id)
        except ApiError as error:
            raise NotFound(f"The catalogue lists no such model: {error.message}", param="model") from None
        if not isinstance(wanted, model_ids.ExplicitId):
            raise NotFound("The catalogue lists no such model.", param="model")
        return Response(listing.find_model(snapshot.current(), wanted, timezone.now().date()))
