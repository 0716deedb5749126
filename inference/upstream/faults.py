"""What may go wrong with an upstream."""


class UpstreamFault(Exception):
    """The upstream said, or did, something that ends the request. `message` quotes it without secrets."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message, self.status = message, status


class BrokenAnswer(UpstreamFault):
    """Bytes that are no HTTP, or more of it than an answer needs."""
