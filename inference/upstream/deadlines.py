"""The time budgets of one upstream attempt, in seconds of the monotonic clock (docs/api.md, Time budgets)."""

import time

from django.conf import settings

from ..estimator import tokens_in
from .faults import UpstreamFault

FIRST_BYTE, STREAM_IDLE, OVERALL, AFTER_FINISH = "first-byte", "stream-idle", "overall", "after-finish"
ORDINARY_PROMPT_TOKENS = 32_000
AFTER_FINISH_SECONDS = 2.0  # given to late usage once every choice has finished


class DeadlineExpired(UpstreamFault):
    """A budget ran out; `budget` is its public name."""

    def __init__(self, budget: str, seconds: float) -> None:
        super().__init__(f"exceeded the {budget} budget of {seconds:g} s")
        self.budget, self.seconds = budget, seconds


def first_byte_seconds(request_bytes: int) -> float:
    """The budget of the first byte: a long prompt, estimated by the length of the request's body, has more of it."""
    beyond = max(0, tokens_in(request_bytes) - ORDINARY_PROMPT_TOKENS)
    longer: float = settings.GATEWAY_FIRST_BYTE_PER_1000_TOKENS * beyond / 1000
    return float(settings.GATEWAY_FIRST_BYTE_TIMEOUT) + longer


class Deadlines:
    """What is allowed until when. `phase_ends` moves with the answer, `overall_ends` does not."""

    __slots__ = ("_idle_seconds", "_overall_seconds", "_phase_seconds", "overall_ends", "phase", "phase_ends")

    def __init__(self, first_byte: float) -> None:
        now = time.monotonic()
        self._idle_seconds: float = settings.GATEWAY_STREAM_IDLE_TIMEOUT
        self._overall_seconds: float = settings.GATEWAY_OVERALL_TIMEOUT
        self.overall_ends = now + self._overall_seconds
        self.phase, self._phase_seconds, self.phase_ends = FIRST_BYTE, first_byte, now + first_byte

    def progressed(self) -> None:
        """The upstream said something that counts: the idle budget starts anew."""
        if self.phase is not AFTER_FINISH:
            self.phase, self._phase_seconds = STREAM_IDLE, self._idle_seconds
            self.phase_ends = time.monotonic() + self._idle_seconds

    def finished(self) -> None:
        """Every choice has finished: only late usage is still waited for."""
        self.phase, self._phase_seconds = AFTER_FINISH, AFTER_FINISH_SECONDS
        self.phase_ends = time.monotonic() + AFTER_FINISH_SECONDS

    def whole_answer(self) -> None:
        """The head of a whole answer has come: only the overall budget is left."""
        self.phase, self._phase_seconds, self.phase_ends = OVERALL, self._overall_seconds, self.overall_ends

    @property
    def is_after_finish(self) -> bool:
        """Whether the wait is for late usage only."""
        return self.phase is AFTER_FINISH

    @property
    def seconds_left(self) -> float:
        """Until the nearest budget ends; 0 where one has ended."""
        return max(0.0, min(self.phase_ends, self.overall_ends) - time.monotonic())

    def expired(self) -> DeadlineExpired:
        """The budget that ends first."""
        if self.overall_ends <= self.phase_ends:
            return DeadlineExpired(OVERALL, self._overall_seconds)
        return DeadlineExpired(self.phase, self._phase_seconds)
