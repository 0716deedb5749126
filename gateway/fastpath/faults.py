"""Defines the faults of an upstream that end a request."""


class UpstreamFault(Exception):
    """Holds a `message` without secrets; `is_lasting` if another attempt would fail too."""

    is_lasting = False

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.message, self.status = message, status


class BrokenAnswer(UpstreamFault):
    """The answer breaks HTTP, or its headers do not end."""


class Unreachable(UpstreamFault):
    """No connection could be opened, or it broke before the end of the answer."""


class AnswerTooLarge(UpstreamFault):
    """The answer is larger than GATEWAY_MAX_UPSTREAM_BYTES."""


class DeadlineExpired(UpstreamFault):
    """A timeout was exceeded. `budget` says which one, and `seconds` how long it is."""

    def __init__(self, budget: str, seconds: float) -> None:
        super().__init__(f"exceeded the {budget} timeout of {seconds:g} s")
        self.budget, self.seconds = budget, seconds
