"""Counts requests for Prometheus (METRICS_BIND)."""
# Values of labels come from the catalogue, from constants of the product, or are `other`: never from a client.
# docs/decisions/0007-metrics-beside-the-workers.md explains why the counting is done in the beat.

import os
import time
from collections import Counter as Sums
from collections.abc import Collection, Iterable
from functools import cache, partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string
from prometheus_client import Counter, Gauge, Histogram

from ..db import sessions as prepared
from ..db.postgresql import base
from ..errors import OWN_CODES, ApiError
from ..fastpath.http_client import UpstreamAttempt
from ..fastpath.redis import shared_store
from ..money import UNITS
from ..server.hooks import MetricReading, worker_hooks
from ..server.turns import take_turns
from .metrics_server import FOLDER
from .request_events import OPERATIONS, Outcome, RequestEvent, SettledFigures, observers
from .write_behind import WriteBehind

OTHER = "other"
MOST_WAITING = 2000

# Upper bounds in seconds, or tokens. OpenTelemetry's conventions for generative AI define the first three.
DURATION = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
TOKENS = tuple(4.0**power for power in range(14))
PHASE = (0.001, 0.005, *DURATION)
SETTLEMENT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

STATUSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx")

_ROUTE = ("endpoint", "provider", "route")
_MODEL = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_response_model")
requests = Counter("gateway_requests", "Requests of the API that are complete.", (*_ROUTE, "outcome"))
errors = Counter(
    "gateway_errors",
    "Requests that were refused or failed, or whose stream broke off, by the code of their error.",
    ("endpoint", "code"),
)
tokens = Counter(
    "gateway_tokens",
    "Tokens of settled requests, by kind; the four kinds add up to all of them.",
    (*_ROUTE, "kind"),
)
cost = Counter("gateway_cost_eur", "Cost of settled requests in EUR.", _ROUTE)
energy = Counter("gateway_energy_wh", "Energy of settled requests in Wh, if it is known.", _ROUTE)
carbon = Counter("gateway_carbon_gco2e", "Carbon of settled requests in gCO2e, if it is known.", _ROUTE)
attempts = Counter(
    "gateway_upstream_attempts",
    "Calls of upstreams, by the class of their answer's status.",
    ("provider", "status"),
)
phases = Histogram(
    "gateway_upstream_phase_duration_seconds",
    "Upstream calls: to the connection, to the head, to the first output, and from there to the end.",
    ("provider", "phase"),
    buckets=PHASE,
)
settlement = Histogram(
    "gateway_settlement_duration_seconds", "Settling a request, all waits included.", buckets=SETTLEMENT
)
wallet_wait = Histogram(
    "gateway_settlement_wallet_wait_seconds",
    "The part of a settlement that waited for the wallet's row.",
    buckets=SETTLEMENT,
)
duration = Histogram(
    "gen_ai_server_request_duration_seconds",
    "Routed requests from their beginning to their end.",
    (*_MODEL, "error_type"),
    buckets=DURATION,
)
first_token = Histogram(
    "gen_ai_server_time_to_first_token_seconds",
    "Streams from their request's beginning to their first output.",
    _MODEL,
    buckets=FIRST_TOKEN,
)
usage = Histogram(
    "gen_ai_client_token_usage", "Tokens of a settled request.", (*_MODEL, "gen_ai_token_type"), buckets=TOKENS
)

_at = cache(lambda metric, *labels: metric.labels(*labels))  # Prometheus' own look-up takes as long as counting
_sums: Sums[Any] = Sums()  # by counter and labels; added once a beat to the numbers in the mapped file


def count(event: RequestEvent) -> None:
    """Adds the figures of a completed request to the metrics."""
    place = event.endpoint or OTHER, event.provider or OTHER, event.route or OTHER
    _sums[requests, *place, event.outcome.value] += 1
    if event.is_failure:
        _sums[errors, place[0], event.code if event.code in OWN_CODES else OTHER] += 1
    if not event.route:
        return
    model = OPERATIONS.get(event.endpoint, "count_tokens"), event.provider, event.route
    _at(duration, *model, "" if event.outcome == Outcome.SERVED else event.outcome.value).observe(event.duration)
    if event.first_output_at is not None and event.is_stream:
        _at(first_token, *model).observe(event.first_output_at - event.started)
    if event.settled is not None:
        _count_settled(event.settled, place, model)
        settlement.observe(event.settlement_seconds)
        if event.wallet_wait_seconds is not None:
            wallet_wait.observe(event.wallet_wait_seconds)
    for attempt in event.attempts:
        _count_attempt(attempt, event.first_output_at if attempt is event.attempts[-1] else None)


def _count_settled(settled: SettledFigures, place: tuple[str, ...], model: tuple[str, ...]) -> None:
    _at(usage, *model, "input").observe(settled.prompt_tokens)
    _at(usage, *model, "output").observe(settled.completion_tokens)
    _sums[tokens, *place, "uncached_prompt"] += settled.uncached_prompt_tokens
    _sums[tokens, *place, "cache_read"] += settled.cache_read_tokens or 0
    _sums[tokens, *place, "cache_write"] += settled.cache_write_tokens or 0
    _sums[tokens, *place, "completion"] += settled.completion_tokens
    for metric, figure in ((cost, settled.cost_eur), (energy, settled.energy_wh), (carbon, settled.carbon_gco2e)):
        if figure:
            _sums[metric, *place] += figure


def _count_attempt(attempt: UpstreamAttempt, first_output_at: float | None) -> None:
    # The attempt may have ended in any phase. If it had no output, `rest` begins after the head.
    _sums[attempts, attempt.provider, STATUSES[min(attempt.status // 100, 5)]] += 1
    moments = {"connect": attempt.connected_at, "head": attempt.head_at, "first_output": first_output_at or 0.0}
    since = attempt.began_at
    for phase, moment in moments.items():
        if moment:
            _at(phases, attempt.provider, phase).observe(moment - since)
            since = moment
        elif phase != "first_output":
            return
    _at(phases, attempt.provider, "rest").observe(attempt.ended_at - since)


def _begin_series(providers: Iterable[str]) -> None:
    # Prometheus computes an increase from two samples. So a series must exist before its first event.
    for provider in providers:
        for status in STATUSES:
            _at(attempts, provider, status)


def _begin_errors() -> None:
    # All codes for inference endpoints. For others only our own failure: their refusals concern only the client.
    served = import_string(settings.INFERENCE_ENDPOINTS)
    for endpoint in (*_known("endpoint"), OTHER):
        for code in (*OWN_CODES, OTHER) if endpoint in served else (ApiError.code,):
            _at(errors, endpoint, code)


def _write_sums() -> None:
    while _sums:
        (metric, *labels), figure = _sums.popitem()
        _at(metric, *labels).inc(figure / UNITS if metric in (cost, energy, carbon) else figure)


class WorkerMetrics:
    """Collects a worker's requests, and counts them and the apps' readings with each beat."""

    def __init__(self) -> None:
        self._noted: WriteBehind[UUID, RequestEvent] = WriteBehind(self._count_each, most=MOST_WAITING)
        self._read: dict[str, Counter | Gauge] = {}
        self._counted: Sums[tuple[str, str]] = Sums()  # the value of each reading that is a counter, at the last beat

    def note(self, event: RequestEvent) -> None:
        # In a flood there is no room to collect the event, so it is counted at once.
        if not self._noted.note(event.id, event):
            count(event)

    def write(self) -> None:
        _begin_series(_known("provider"))
        self._noted.flush()
        _write_sums()
        for reading in worker_hooks.readings:
            self._write_reading(reading)

    def _count_each(self, events: dict[UUID, RequestEvent]) -> None:
        for event in events.values():
            take_turns()
            count(event)

    def _write_reading(self, reading: MetricReading) -> None:
        labels, metric = [reading.label] if reading.label else [], self._read.get(reading.name)
        if metric is None:
            kind = Counter if reading.how == "counter" else partial(Gauge, multiprocess_mode=reading.how)
            metric = self._read[reading.name] = kind(reading.name, reading.help, labels)
        known = _known(reading.label) if reading.how == "counter" else ()
        for value, number in (dict.fromkeys(known, 0.0) | {**reading.read()}).items():
            child = _at(metric, value) if labels else metric
            if isinstance(child, Counter):
                child.inc(max(0, number - self._counted[reading.name, value]))
                self._counted[reading.name, value] = number  # type: ignore[assignment]  # Counter counts floats as well
            else:
                child.set(number)


def register() -> None:
    """Counts this worker's requests from now on, if METRICS_BIND is set."""
    if FOLDER not in os.environ:
        return
    metrics = WorkerMetrics()
    observers.append(metrics.note)
    worker_hooks.ready += [_begin_errors, metrics.write]
    worker_hooks.beat.append(metrics.write)
    worker_hooks.stop.append(metrics.write)
    worker_hooks.readings += [
        MetricReading("gateway_workers", "Workers that serve.", lambda: {"": 1}),
        MetricReading(
            "gateway_beat_timestamp_seconds",
            "The oldest of the workers' last beats.",
            lambda: {"": time.time()},
            how="livemin",
        ),
        MetricReading(
            "gateway_database_waits",
            "How often a free connection to the database was waited for.",
            lambda: {name: count for name, (count, _) in _waits().items()},
            how="counter",
            label="pool",
        ),
        MetricReading(
            "gateway_database_wait_seconds",
            "Seconds of waiting for a free connection to the database.",
            lambda: {name: seconds for name, (_, seconds) in _waits().items()},
            how="counter",
            label="pool",
        ),
    ]
    if settings.SHARED_CACHE_URL is not None:
        worker_hooks.readings.append(
            MetricReading(
                "gateway_redis_away", "Workers that count limits alone.", lambda: {"": float(shared_store.is_away)}
            )
        )


def _known(label: str) -> Collection[str]:
    return worker_hooks.known.get(label, tuple)()


def _waits() -> dict[str, tuple[int, float]]:
    return prepared.waits() | base.waits()
