from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from ..db.pool import release
from ..errors import MethodNotAllowed
from .bodies import parse_object, read_body


class ControlView(APIView):
    """Is the base of endpoints outside inference. The message of a 500 names the step `doing`."""

    doing: ClassVar[str]

    def options(self, request: Request, *args: Any, **kwargs: Any) -> Response:  # type: ignore[override]
        return Response(status=204)

    def json_body(self, request: Request) -> dict[str, Any]:
        # The Content-Type is ignored. While the body arrives, other requests can use the connection.
        release("default")
        return parse_object(read_body(request.META))

    def http_method_not_allowed(self, request: Request, *args: Any, **kwargs: Any) -> Response:  # type: ignore[override]
        allowed = self.allowed_methods
        raise MethodNotAllowed(
            f"{request.method} is not allowed on {request.path}. Use {' or '.join(allowed)}.",
            headers={"Allow": ", ".join(allowed)},
        )

    def perform_authentication(self, request: Request) -> None:
        if request.method != "OPTIONS":
            super().perform_authentication(request)

    def check_permissions(self, request: Request) -> None:
        if request.method != "OPTIONS":
            super().check_permissions(request)
