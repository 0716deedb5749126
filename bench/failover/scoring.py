"""Scores a cell by FailoverBench (methodology 0.1): one fault, requested in one way.

docs/benchmarks.md#failover defines pass, partial, safe and fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from bench.failover.provider import Attempt

Verdict = Literal["pass", "partial", "safe", "fail"]


@dataclass(frozen=True, slots=True)
class Received:
    """Holds the answer to one request: `seconds` until its end, `error` of a status or of a frame within a stream."""

    seconds: float
    at: float = 0.0  # when it was sent, by the monotonic clock
    text: str = ""
    model: str = ""
    has_usage: bool = False
    error: str = ""
    hung: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Holds the events of one scenario: what the client got for each request, and what the provider saw."""

    received: list[Received]
    primary: list[Attempt]
    fallback: list[Attempt]
    is_alive: bool  # a healthy request worked afterwards
    may_fall_back: bool
    answer: str
    recovered_at: float  # when the outage was over

    @property
    def last(self) -> Received:
        return self.received[-1]

    def is_rescued(self) -> bool:
        """Tells whether every request got its whole answer."""
        return all(not each.error and not each.hung and each.text == self.answer for each in self.received)

    def presents_a_part(self) -> bool:
        """Tells whether a request ended well without all of its answer."""
        return any(not each.error and not each.hung and each.text != self.answer for each in self.received)

    def attempts_within(self, seconds: float) -> int:
        """Counts the attempts at the primary within these seconds of the first."""
        return sum(each.at - self.primary[0].at < seconds for each in self.primary)

    def is_back_within(self, seconds: float) -> bool:
        """Tells whether the primary answered within these seconds after its outage."""
        answered = [each.at for each in self.primary if each.status == 200]
        return bool(answered) and min(answered) - self.recovered_at <= seconds

    def was_served_in_the_outage(self) -> bool:
        """Tells whether each request that was sent during the outage got its whole answer."""
        during = [each for each in self.received if each.at < self.recovered_at]
        return bool(during) and all(each.text == self.answer for each in during)


Check = Callable[[Run], bool]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Describes one of the sixteen: `rules` must hold, `advice` should.

    Rules named for a fallback need one to be judged.
    """

    id: str
    title: str
    seconds: float  # after which a request counts as hung
    rules: dict[str, Check] = field(default_factory=dict)
    advice: dict[str, Check] = field(default_factory=dict)
    wants_error: bool = False


def verdict(scenario: Scenario, seen: Run) -> tuple[Verdict, str]:
    """Returns the cell's verdict and its reason."""
    if any(each.hung for each in seen.received):
        return "fail", "hangs"
    if seen.presents_a_part() and not scenario.wants_error:
        return "fail", "a part presented as the whole"
    broken = [name for name, holds in scenario.rules.items() if not holds(seen)]
    if broken:
        return "fail", ", ".join(broken)
    if scenario.wants_error:
        return ("pass", "the error, as it was") if seen.last.error else ("partial", "routed around")
    if not seen.is_rescued():
        return "safe", next(each.error for each in seen.received if each.error)
    missed = [name for name, holds in scenario.advice.items() if not holds(seen)]
    return ("partial", ", ".join(missed)) if missed else ("pass", "rescued")


def _at_most(attempts: int) -> Check:
    return lambda seen: len(seen.primary) <= attempts


def _within(seconds: float) -> Check:
    return lambda seen: seen.last.seconds <= seconds


def _with_fallback(check: Check) -> Check:
    return lambda seen: not seen.may_fall_back or check(seen)


def _retry_after_honoured(seen: Run) -> bool:
    return len(seen.primary) > 1 and seen.primary[1].at - seen.primary[0].at >= 1.8


BOUNDED = {"bounded attempts": _at_most(6)}
RETRIED: dict[str, Check] = {"not retried at the same provider": lambda seen: len(seen.primary) > 1}
NOT_RESENT: dict[str, Check] = {"resent": lambda seen: len(seen.primary) == 1}
ALIVE: dict[str, Check] = {"dead afterwards": lambda seen: seen.is_alive}
USAGE: dict[str, Check] = {"no usage": lambda seen: seen.last.has_usage}
# FailoverBench's own check reads the last segment of `model`; our ids name the provider in the first.
NAMED: dict[str, Check] = {
    "fallback not named": lambda seen: not seen.fallback or seen.last.model.startswith("backup/"),
}

SCENARIOS = (
    Scenario(
        "S01",
        "429 with Retry-After, once",
        20,
        {"hammers": lambda seen: seen.attempts_within(1.5) <= 2},
        {**RETRIED, "Retry-After not waited for": _retry_after_honoured},
    ),
    Scenario("S02", "429 without Retry-After", 40, {"hammers": lambda seen: seen.attempts_within(3) <= 4, **BOUNDED}),
    Scenario("S03", "500 once", 20, {}, RETRIED),
    Scenario("S04", "503", 40, BOUNDED),
    Scenario("S05", "reset before headers, once", 20),
    Scenario("S06", "no response", 130, {"over 100 s": _within(100)}, {"silent route retried": _at_most(1)}),
    Scenario("S07", "first token after 20 s", 60, {}, {"no limit to the first token": _with_fallback(_within(15))}),
    Scenario("S08", "stream cut", 40),
    Scenario("S09", "stream stalls for 30 s", 70, {"over 45 s": _within(45), **ALIVE}),
    Scenario("S10", "malformed chunk", 30, ALIVE),
    Scenario("S11", "no [DONE]", 30, {"waits for it": _within(8)}, USAGE),
    Scenario("S12", "context too long", 20, NOT_RESENT),
    Scenario("S13", "content filter", 20, NOT_RESENT, wants_error=True),
    Scenario("S14", "stream cut, fallback without prefill", 40),
    Scenario(
        "S15",
        "down for 60 s, 20 requests",
        30,
        {
            "not served in the outage": _with_fallback(Run.was_served_in_the_outage),
            "not back within 30 s": _with_fallback(lambda seen: seen.is_back_within(30)),
        },
    ),
    Scenario("S16", "accounting", 40, {**NAMED, **BOUNDED}, {"no usage": _with_fallback(USAGE["no usage"])}),
)
