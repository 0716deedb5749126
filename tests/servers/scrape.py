"""Reads a server's metrics for Prometheus."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import requests
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.servers.gateway import GatewayServer


@dataclass(frozen=True)
class Scrape:
    """Holds the samples of one moment."""

    samples: list[Sample]

    @classmethod
    def of(cls, server: GatewayServer) -> Self:
        reply = requests.get(f"http://{server.env['METRICS_BIND']}/metrics", timeout=10)
        reply.raise_for_status()
        return cls([sample for family in text_string_to_metric_families(reply.text) for sample in family.samples])

    def total(self, name: str, **labels: str) -> float:
        """Returns the sum of the samples of this name that have these labels, or 0 if none has."""
        return sum(sample.value for sample in self._named(name) if labels.items() <= sample.labels.items())

    def by(self, name: str, label: str) -> dict[str, float]:
        """Returns the sums of the samples of this name for each value of a label."""
        sums: Counter[str] = Counter()
        for sample in self._named(name):
            sums[sample.labels[label]] += sample.value  # type: ignore[assignment]  # Counter counts floats as well
        return dict(sums)

    @property
    def series(self) -> set[tuple[str, frozenset[tuple[str, str]]]]:
        """Returns every name with its labels."""
        return {(sample.name, frozenset(sample.labels.items())) for sample in self.samples}

    @property
    def labels(self) -> dict[str, set[str]]:
        """Returns the labels of each name's samples."""
        found: dict[str, set[str]] = {}
        for sample in self.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
        return found

    def _named(self, name: str) -> Iterable[Sample]:
        return (sample for sample in self.samples if sample.name == name)
