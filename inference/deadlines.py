"""The time budgets of one upstream attempt, in seconds of the monotonic clock (docs/api.md#time-budgets)."""

import time
from dataclasses import dataclass, field

from django.conf import settings

from .dialects.base import UpstreamFault
from .estimator import tokens_in

AFTER_FINISH_SECONDS = 2.0  # given to late usage once every choice has finished
ORDINARY_PROMPT_TOKENS = 32_000


class DeadlineExpired(UpstreamFault):
    """A budget ran out; `budget` is its public name."""

    def __init__(self, budget: str, seconds: float) -> None:
        super().__init__(f"exceeded the {budget} budget of {seconds:g} s")
        self.budget, self.seconds = budget, seconds


@dataclass(slots=True)
class Deadlines:
    """What is allowed until when. Reads ask `remaining()` and call `expire()` when the wait took that long.

    `request_bytes` is the length of the request's body, by which the prompt is estimated: the upstream reads it all
    before its first byte.
    """

    request_bytes: int = 0
    started: float = field(default_factory=time.monotonic)
    _phase: str = "first-byte"
    _phase_seconds: float = 0.0
    _phase_ends: float = 0.0

    def __post_init__(self) -> None:
        beyond = max(0, tokens_in(self.request_bytes) - ORDINARY_PROMPT_TOKENS)
        longer = settings.GATEWAY_FIRST_BYTE_PER_1000_TOKENS * beyond / 1000
        self._enter("first-byte", settings.GATEWAY_FIRST_BYTE_TIMEOUT + longer)

    def progressed(self) -> None:
        """The upstream said something that counts: the idle budget starts anew."""
        if self._phase != "after-finish":
            self._enter("stream-idle", settings.GATEWAY_STREAM_IDLE_TIMEOUT)

    def finished(self) -> None:
        """Every choice has finished: only late usage is still waited for."""
        self._enter("after-finish", AFTER_FINISH_SECONDS)

    def whole_answer(self) -> None:
        """The head of a whole answer has come: only the overall budget is left."""
        self._enter("overall", settings.GATEWAY_OVERALL_TIMEOUT)
        self._phase_ends = self._overall_ends

    @property
    def is_after_finish(self) -> bool:
        """Whether the wait is for late usage only."""
        return self._phase == "after-finish"

    def remaining(self) -> float:
        """Seconds until the nearest budget ends; raises DeadlineExpired where one has ended."""
        left = min(self._phase_ends, self._overall_ends) - time.monotonic()
        if left <= 0:
            self.expire()
        return left

    def expire(self) -> None:
        """Raises DeadlineExpired for the budget that ends first."""
        if self._overall_ends <= self._phase_ends:
            raise DeadlineExpired("overall", settings.GATEWAY_OVERALL_TIMEOUT)
        raise DeadlineExpired(self._phase, self._phase_seconds)

    @property
    def _overall_ends(self) -> float:
        return self.started + float(settings.GATEWAY_OVERALL_TIMEOUT)

    def _enter(self, phase: str, seconds: float) -> None:
        self._phase, self._phase_seconds = phase, seconds
        self._phase_ends = time.monotonic() + seconds
