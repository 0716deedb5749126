"""Runs the scenarios, all at once: each has models of its own at two providers, and a gateway between.

A model is requested in two ways: pinned, which is never served by another provider, and by `auto/…` with
GATEWAY_AUTO_FAILOVER, which may switch to the backup before anything was delivered.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import requests

from bench.failover.provider import ANSWER, BreakingProvider, Timing
from bench.failover.scoring import SCENARIOS, Received, Run, Scenario, Verdict, verdict
from tests import plugin
from tests.catalogue import DEARER, catalogue_for, model, provider
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer

HEALTHY = "healthy"
ALIVE_SECONDS = 10.0
SMALL_WINDOW = 8192  # of the primary, if the prompt is to be too long for it


@dataclass(frozen=True, slots=True)
class RequestMode:
    """Describes how a model is requested: by a pinned or an automatic id."""

    name: str
    prefix: str
    may_fall_back: bool

    def primary(self, scenario: Scenario) -> str:
        """Returns the model's name at the providers and in the catalogue."""
        return f"{self.name}-{scenario.id.lower()}"

    def fallback(self, scenario: Scenario) -> str:
        return f"{self.name}-{scenario.id.lower()}-{'noprefill' if scenario.id == 'S14' else 'ok'}"


REQUEST_MODES = (
    RequestMode("pinned", "primary/test/", may_fall_back=False),
    RequestMode("auto", "auto/test/", may_fall_back=True),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """Holds one scenario in one request mode."""

    verdict: Verdict
    reason: str
    seen: Run


def run(timing: Timing, **env: str) -> dict[tuple[str, str], Cell]:
    """Returns the cells by mode and scenario. The gateway has its defaults except for automatic failover and `env`."""
    folder = plugin.scratch() / "failover"
    folder.mkdir()
    settings = {
        "GATEWAY_AUTO_FAILOVER": "true",
        "GATEWAY_AUTO_SKIP_DOWN": "false",  # each scenario's primary fails, and is called all the same
        "GATEWAY_AUTO_OBJECTIVE": "cost",
        **env,
    }
    with ExitStack() as stack:
        upstream = stack.enter_context(BreakingProvider(timing))
        databases = MigratedDatabases(plugin.databases())
        gateway = GatewayServer(databases, folder, catalogue=_catalogue(upstream.url), env=settings)
        stack.callback(gateway.close)
        gateway.start()
        customer = Customer.open(gateway)
        stack.callback(customer.close)
        threads = stack.enter_context(ThreadPoolExecutor(len(SCENARIOS) * len(REQUEST_MODES)))
        upstream.began_at = time.monotonic()
        asked = [(mode, scenario) for scenario in SCENARIOS for mode in REQUEST_MODES]
        cells = threads.map(lambda pair: _cell(pair[0], pair[1], upstream, customer, timing), asked)
        found = {(mode.name, scenario.id): cell for (mode, scenario), cell in zip(asked, cells, strict=True)}
        gateway.manage("verify_ledger").ok()
    return found


def _catalogue(url: str) -> dict[str, Any]:
    offers = [model(HEALTHY, provider="primary", upstream_model=HEALTHY)]
    for scenario in SCENARIOS:
        for mode in REQUEST_MODES:
            name = mode.primary(scenario)
            window = {"context_length": SMALL_WINDOW} if scenario.id == "S12" else {}
            offers.append(model(name, provider="primary", upstream_model=name, regions=None, **window))
            backup = {"provider": "backup", "upstream_model": mode.fallback(scenario), "pricing": DEARER}
            offers.append(model(name, **backup, regions=None))
    return catalogue_for(url) | {"providers": [provider("primary", url), provider("backup", url)], "models": offers}


def _cell(
    mode: RequestMode, scenario: Scenario, upstream: BreakingProvider, customer: Customer, timing: Timing
) -> Cell:
    asked, count = mode.prefix + mode.primary(scenario), timing.requests if scenario.id == "S15" else 1
    received = []
    for number in range(count):
        time.sleep(max(0.0, upstream.began_at + number * timing.between_requests - time.monotonic()))
        received.append(_ask(customer, asked, scenario.seconds))
    seen = Run(
        received,
        upstream.attempts(mode.primary(scenario)),
        upstream.attempts(mode.fallback(scenario)),
        _ask(customer, f"primary/test/{HEALTHY}", ALIVE_SECONDS).text == ANSWER,
        mode.may_fall_back,
        ANSWER,
        upstream.began_at + timing.outage,
    )
    return Cell(*verdict(scenario, seen), seen)


def _ask(customer: Customer, asked: str, most_seconds: float) -> Received:
    """Reads one stream as a careful client does: an error within it counts, and only [DONE] or the end finishes it."""
    began = time.monotonic()
    body = {"model": asked, "messages": [{"role": "user", "content": "Why?"}], "stream": True}
    headers = {"Authorization": f"Bearer {customer.key}"}
    address = f"{customer.gateway.base_url}/chat/completions"
    text, served, has_usage, error = "", "", False, ""
    try:
        with requests.post(address, json=body, headers=headers, stream=True, timeout=most_seconds) as reply:
            if reply.status_code != 200:
                error = f"{reply.status_code} {reply.json()['error']['code']}"
            for line in reply.iter_lines() if not error else ():
                if not line.startswith(b"data: ") or line == b"data: [DONE]":
                    continue
                frame = json.loads(line.removeprefix(b"data: "))
                if "error" in frame:
                    error = f"{frame['error']['code']} within the stream"
                    break
                served, has_usage = frame["model"], has_usage or "usage" in frame
                text += "".join(choice["delta"].get("content") or "" for choice in frame["choices"])
    except requests.Timeout:
        return Received(time.monotonic() - began, began, hung=True)
    except requests.RequestException as broken:
        error = type(broken).__name__
    seconds = time.monotonic() - began
    return Received(seconds, began, text, served, has_usage, error, hung=seconds > most_seconds)
