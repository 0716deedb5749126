"""Faults of an upstream that end a request."""


class UpstreamFault(Exception):
    """A fault that ends the request; `message` quotes no secrets. One that `is_lasting` would come again."""

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
