"""Faults of an upstream that end a request."""


class UpstreamFault(Exception):
    """A fault, with a `message` without secrets; if `is_lasting` it would come again."""

    is_lasting = False

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message, self.status = message, status


class BrokenAnswer(UpstreamFault):
    """No HTTP, or too much of it."""


class Unreachable(UpstreamFault):
    """No connection that lasted until an answer."""


class AnswerTooLarge(UpstreamFault):
    """An answer above GATEWAY_MAX_UPSTREAM_BYTES."""


class DeadlineExpired(UpstreamFault):
    """A budget, named `budget`, ran out."""

    def __init__(self, budget: str, seconds: float) -> None:
        super().__init__(f"exceeded the {budget} budget of {seconds:g} s")
        self.budget, self.seconds = budget, seconds
