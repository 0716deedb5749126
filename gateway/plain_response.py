"""A response that is no object of Django's, which the inference endpoints give to both of their chains."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

if TYPE_CHECKING:
    from .errors import ApiError


@dataclass(slots=True)
class PlainResponse:
    """A status, headers, and a body that is whole or comes in blocks; the server closes what has `close`.

    `error` is what the body tells, where that is an error.
    """

    status: int
    headers: dict[str, str]
    body: bytes | Iterable[bytes]
    error: "ApiError | None" = None

    def for_django(self) -> HttpResponseBase:
        """The same as Django's views return it."""
        kind: type[Any] = HttpResponse if isinstance(self.body, bytes) else StreamingHttpResponse
        response: HttpResponseBase = kind(self.body, status=self.status, headers=self.headers)
        # Django would log each 4xx and 5xx with its path; what deserves a line has been logged where it happened.
        response._has_been_logged = True  # type: ignore[attr-defined]
        response.api_error = self.error  # type: ignore[attr-defined]  # for the request's event
        return response
