"""METRICS_BIND: what a worker counts of its requests, for Prometheus (docs/operations.md#metrics has the names).

An observer adds to plain numbers as requests complete; the worker's beat writes those that have changed into files of
prometheus_client's multiprocess mode, which `metrics_server` adds up over all workers. Label values are from
the catalogue, from tables of the product, or `other`: never anything that a client has sent.
docs/decisions/0007-metrics-beside-the-workers.md says why.
"""

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from django.conf import settings
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.utils import floatToGoString

from ..errors import OWN_CODES
from ..fastpath import postgresql as prepared
from ..fastpath.redis import shared_store
from ..money import UNITS
from ..server.hooks import Reading, worker_hooks
from ..server.turns import take_turns
from ..stores.postgresql import base
from .metrics_server import FOLDER
from .request_events import Outcome, RequestEvent, Settled, UpstreamAttempt, observers

OTHER = "other"
Labels = Mapping[str, str]

# Upper bounds in seconds, and in tokens. The first three are those of OpenTelemetry's conventions for generative AI.
DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKENS = tuple(4.0**power for power in range(14))
PHASE = (0.001, 0.005, *DURATION)
SETTLEMENT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# What an endpoint does, in OpenTelemetry's names but for the count; the others that are routed are chats of some shape.
CHAT, COUNT = "chat", "count_tokens"
OPERATIONS = {
    "completions": "text_completion",
    "embeddings": "embeddings",
    "messages/count_tokens": COUNT,
    "responses/input_tokens": COUNT,
}
STATUSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")
PHASES = ("connect", "head", "first_output", "rest")
KINDS = ("uncached_prompt", "cache_read", "cache_write", "completion")

HELP = {
    "gateway_requests": "Requests of the API that are complete.",
    "gateway_errors": "Requests that were refused or failed, or whose stream broke off, by the code of their error.",
    "gateway_tokens": "Tokens of settled requests, by kind; the four kinds add up to all of them.",
    "gateway_cost_eur": "Cost of settled requests in EUR.",
    "gateway_energy_wh": "Energy of settled requests in Wh, where it is known.",
    "gateway_carbon_gco2e": "Carbon of settled requests in gCO2e, where it is known.",
    "gateway_upstream_attempts": "Calls of upstreams, by the class of the status that they answered.",
    "gateway_upstream_phase_duration_seconds": "Upstream calls: to the connection, to the head, to the first output, "
    "and from there to the end.",
    "gateway_settlement_duration_seconds": "Settling a request, all waits included.",
    "gateway_settlement_wallet_wait_seconds": "The part of a settlement that waited for the wallet's row.",
    "gen_ai_server_request_duration_seconds": "Routed requests from their beginning to their end.",
    "gen_ai_server_time_to_first_token_seconds": "Streams from their request's beginning to their first output.",
    "gen_ai_client_token_usage": "Tokens of a settled request.",
}


class Numbers:
    """Numbers that only grow, as many as there are keys, in units of 1 / `scale`. Reported once one has grown."""

    __slots__ = ("_keys", "_scale", "_written", "values")

    def __init__(self, keys: Iterable[str], *, scale: int = 1) -> None:
        self._keys, self._scale = tuple(keys), scale
        self.values: list[float] = [0] * len(self._keys)
        self._written: list[float] | None = None

    def write(self, file: MmapedDict) -> None:
        """Those that have changed; the first time all, since a bucket that is missing is not an empty one."""
        before = self._written
        if before == self.values or (before is None and not any(self.values)):
            return
        for index, value in enumerate(self.values):
            if before is None or before[index] != value:
                file.write_value(self._keys[index], value / self._scale, 0.0)
        self._written = self.values.copy()


class Histogram(Numbers):
    """Counts by bucket, the last without a bound, and behind them the sum of what was observed."""

    __slots__ = ("_bounds",)

    def __init__(self, name: str, bounds: Sequence[float], labels: Labels) -> None:
        buckets = [_key(name, "_bucket", {**labels, "le": floatToGoString(le)}) for le in (*bounds, float("inf"))]
        super().__init__([*buckets, _key(name, "_sum", labels)])
        self._bounds = bounds

    def observe(self, value: float) -> None:
        """Counts one."""
        values = self.values
        values[bisect_left(self._bounds, value)] += 1
        values[-1] += value


def _key(name: str, suffix: str, labels: Labels) -> str:
    return mmap_key(name, name + suffix, list(labels), list(labels.values()), HELP[name])


def _counter(name: str, labels: Labels, *, scale: int = 1) -> Numbers:
    return Numbers([_key(name, "_total", labels)], scale=scale)


def _counters(name: str, labels: Labels, by: str, values: Iterable[str]) -> Numbers:
    return Numbers(_key(name, "_total", {**labels, by: value}) for value in values)


class RouteFigures:
    """What is counted of settled requests of one endpoint on one route."""

    __slots__ = ("carbon", "cost", "energy", "first_token", "input", "labels", "output", "tokens")

    def __init__(self, endpoint: str, provider: str, route: str) -> None:
        self.labels = {
            "gen_ai_operation_name": OPERATIONS.get(endpoint, CHAT),
            "gen_ai_provider_name": provider,
            "gen_ai_response_model": route,
        }
        own = {"endpoint": endpoint, "provider": provider, "route": route}
        self.first_token = Histogram("gen_ai_server_time_to_first_token_seconds", FIRST_TOKEN, self.labels)
        self.input, self.output = (
            Histogram("gen_ai_client_token_usage", TOKENS, {**self.labels, "gen_ai_token_type": kind})
            for kind in ("input", "output")
        )
        self.tokens = _counters("gateway_tokens", own, "kind", KINDS)
        self.cost = _counter("gateway_cost_eur", own, scale=UNITS)
        self.energy = _counter("gateway_energy_wh", own, scale=UNITS)
        self.carbon = _counter("gateway_carbon_gco2e", own, scale=UNITS)

    def note(self, settled: Settled) -> None:
        """Adds a settled request."""
        self.input.observe(settled.prompt_tokens)
        self.output.observe(settled.completion_tokens)
        values = self.tokens.values
        values[0] += settled.uncached_prompt_tokens
        values[1] += settled.cache_read_tokens or 0
        values[2] += settled.cache_write_tokens or 0
        values[3] += settled.completion_tokens
        self.cost.values[0] += settled.cost_eur or 0
        self.energy.values[0] += settled.energy_wh or 0
        self.carbon.values[0] += settled.carbon_gco2e or 0

    def histograms(self) -> tuple[Histogram, ...]:
        return self.first_token, self.input, self.output

    def counters(self) -> tuple[Numbers, ...]:
        return self.tokens, self.cost, self.energy, self.carbon


class RequestFigures:
    """How many requests of one endpoint on one route ended in one way, and how long they took."""

    __slots__ = ("count", "duration", "is_changed", "of_route")

    def __init__(self, event: RequestEvent, of_route: RouteFigures | None) -> None:
        labels = {
            "endpoint": event.endpoint or OTHER,
            "provider": event.provider or OTHER,
            "route": event.route or OTHER,
            "outcome": event.outcome.value,
        }
        self.count = _counter("gateway_requests", labels)
        self.of_route = of_route
        self.duration: Histogram | None = None
        if of_route is not None:
            error = "" if event.outcome == Outcome.SERVED else event.outcome.value
            labels = {**of_route.labels, "error_type": error}
            self.duration = Histogram("gen_ai_server_request_duration_seconds", DURATION, labels)
        self.is_changed = False


class UpstreamFigures:
    """The calls of one provider."""

    __slots__ = ("attempts", "phases")

    def __init__(self, provider: str) -> None:
        labels = {"provider": provider}
        self.attempts = _counters("gateway_upstream_attempts", labels, "status", STATUSES)
        self.phases = tuple(
            Histogram("gateway_upstream_phase_duration_seconds", PHASE, {**labels, "phase": phase}) for phase in PHASES
        )

    def note(self, attempt: UpstreamAttempt, first_output_at: float | None) -> None:
        """Adds a call, phase by phase as far as it came; without an output of its own the rest begins with the head."""
        self.attempts.values[min(attempt.status // 100, 5)] += 1
        connect, head, first_output, rest = self.phases
        if not attempt.connected_at:
            return
        connect.observe(attempt.connected_at - attempt.began_at)
        if not attempt.head_at:
            return
        head.observe(attempt.head_at - attempt.connected_at)
        if first_output_at is None:
            rest.observe(attempt.ended_at - attempt.head_at)
        else:
            first_output.observe(first_output_at - attempt.head_at)
            rest.observe(attempt.ended_at - first_output_at)


class WorkerMetrics:
    """Everything that one worker counts, and the files that it is written to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # A process id may come again: what its last owner has counted stays.
        self._suffix = f"{os.getpid()}-{time.time_ns()}.db"
        self._files: dict[str, MmapedDict] = {}
        self._requests: dict[tuple[str, str, Outcome], RequestFigures] = {}
        self._routes: dict[tuple[str, str], RouteFigures] = {}
        self._upstreams: dict[str, UpstreamFigures] = {}
        self._errors: dict[tuple[str, str], Numbers] = {}
        self._settlement = Histogram("gateway_settlement_duration_seconds", SETTLEMENT, {})
        self._wallet_wait = Histogram("gateway_settlement_wallet_wait_seconds", SETTLEMENT, {})

    def note(self, event: RequestEvent) -> None:
        """Takes a complete request in. Some microseconds: no file is touched."""
        figures = self._requests.get((event.endpoint, event.route, event.outcome)) or self._figures_of(event)
        figures.is_changed = True
        figures.count.values[0] += 1
        if event.is_failure:
            self._note_error(event.endpoint or OTHER, event.code if event.code in OWN_CODES else None)
        of_route, duration = figures.of_route, figures.duration
        if of_route is None or duration is None:
            return
        duration.observe(event.ended_at - event.started)
        first_output_at = event.first_output_at
        if first_output_at is not None and event.is_stream:
            of_route.first_token.observe(first_output_at - event.started)
        if event.settled is not None:
            of_route.note(event.settled)
            self._settlement.observe(event.settlement_seconds)
            if event.wallet_wait_seconds is not None:
                self._wallet_wait.observe(event.wallet_wait_seconds)
        for attempt in event.attempts:
            upstream = self._upstreams.get(attempt.provider)
            if upstream is None:
                upstream = self._upstreams[attempt.provider] = UpstreamFigures(attempt.provider)
            upstream.note(attempt, first_output_at if attempt is event.attempts[-1] else None)

    def write(self) -> None:
        """What has changed, and what the apps read. Many routes at once are written in turns with the requests."""
        counters, histograms = self._file("counter"), self._file("histogram")
        for figures in list(self._requests.values()):  # others come while it pauses
            if not figures.is_changed:
                continue
            take_turns()
            figures.is_changed = False
            figures.count.write(counters)
            if figures.duration is not None:
                figures.duration.write(histograms)
            if figures.of_route is not None:
                for numbers in figures.of_route.counters():
                    numbers.write(counters)
                for numbers in figures.of_route.histograms():
                    numbers.write(histograms)
        for numbers in list(self._errors.values()):
            numbers.write(counters)
        for upstream in list(self._upstreams.values()):
            take_turns()
            upstream.attempts.write(counters)
            for numbers in upstream.phases:
                numbers.write(histograms)
        self._settlement.write(histograms)
        self._wallet_wait.write(histograms)
        for reading in worker_hooks.readings:
            self._write_reading(reading)

    def _figures_of(self, event: RequestEvent) -> RequestFigures:
        """New ones."""
        of_route = None
        if event.route:
            at = event.endpoint, event.route
            of_route = self._routes.get(at)
            if of_route is None:
                of_route = self._routes[at] = RouteFigures(event.endpoint, event.provider, event.route)
        figures = self._requests[event.endpoint, event.route, event.outcome] = RequestFigures(event, of_route)
        return figures

    def _note_error(self, endpoint: str, code: str | None) -> None:
        at = endpoint, code or OTHER
        counted = self._errors.get(at)
        if counted is None:
            counted = self._errors[at] = _counter("gateway_errors", {"endpoint": endpoint, "code": at[1]})
        counted.values[0] += 1

    def _write_reading(self, reading: Reading) -> None:
        is_counter = reading.how == "counter"
        file = self._file("counter" if is_counter else f"gauge_{reading.how}")
        for value, number in reading.read().items():
            labels = {reading.label: value} if reading.label else {}
            sample = f"{reading.name}_total" if is_counter else reading.name
            key = mmap_key(reading.name, sample, list(labels), list(labels.values()), reading.help)
            file.write_value(key, number, time.time())

    def _file(self, kind: str) -> MmapedDict:
        file = self._files.get(kind)
        if file is None:
            file = self._files[kind] = MmapedDict(str(self._folder / f"{kind}_{self._suffix}"))
        return file


def register() -> None:
    """Observes requests, in a worker of a server with METRICS_BIND; not in a command."""
    if FOLDER not in os.environ:
        return
    metrics = WorkerMetrics(Path(os.environ[FOLDER]))
    observers.append(metrics.note)
    worker_hooks.beat.append(metrics.write)
    worker_hooks.stop.append(metrics.write)
    worker_hooks.readings += [
        Reading("gateway_workers", "Workers that serve.", lambda: {"": 1}),
        Reading("gateway_beat_timestamp_seconds", "The oldest of the workers' last beats.", _now, how="livemin"),
        Reading(
            "gateway_database_waits",
            "Times that something waited for a free connection to the database.",
            lambda: {name: count for name, (count, _) in _waits().items()},
            how="counter",
            label="pool",
        ),
        Reading(
            "gateway_database_wait_seconds",
            "Seconds that were waited for a free connection to the database.",
            lambda: {name: seconds for name, (_, seconds) in _waits().items()},
            how="counter",
            label="pool",
        ),
    ]
    if settings.SHARED_CACHE_URL is not None:
        worker_hooks.readings.append(
            Reading("gateway_redis_away", "Workers that count limits alone.", lambda: {"": float(shared_store.is_away)})
        )


def _now() -> dict[str, float]:
    return {"": time.time()}


def _waits() -> dict[str, tuple[int, float]]:
    """By pool: the worker's own sessions, and Django's connections."""
    return prepared.waits() | base.waits()
