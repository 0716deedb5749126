"""What may go wrong with an upstream: every fault that ends a request of its own accord."""


class UpstreamFault(Exception):
    """The upstream said, or did, something that ends the request. `message` quotes it without secrets.

    One that `is_lasting` would come again if the same request were sent again.
    """

    is_lasting = False

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message, self.status = message, status


class BrokenAnswer(UpstreamFault):
    """Bytes that are no HTTP, or more of it than an answer needs."""


class Unreachable(UpstreamFault):
    """No connection, no TLS, or none that lasted until an answer."""


class AnswerTooLarge(UpstreamFault):
    """An answer above GATEWAY_MAX_UPSTREAM_BYTES."""


class DeadlineExpired(UpstreamFault):
    """A budget ran out; `budget` is its public name."""

    def __init__(self, budget: str, seconds: float) -> None:
        super().__init__(f"exceeded the {budget} budget of {seconds:g} s")
        self.budget, self.seconds = budget, seconds
