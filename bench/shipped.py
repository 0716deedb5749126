"""`python -m bench.shipped` counts the contents of the shipped catalogue, for README and docs/catalogue.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.servers.process import ROOT

FACTS = {"source", "as_of"}  # about a whole table, next to its entries


def counts() -> Iterator[tuple[str, int]]:
    """Yields each kind of content and its number."""
    data = ROOT / "catalogue" / "data"
    offers = [offer for path in data.glob("models-*.yaml") for offer in _read(path)["models"]]
    routes = [(offer, route) for offer in offers for route in offer["regions"]]
    places, sizes = _read(data / "places.yaml"), _read(ROOT / "tools" / "model_sizes.yaml")
    yield "providers", len(_read(data / "providers.yaml")["providers"])
    yield "offers", len(offers)
    yield "models", len({offer["id"] for offer in offers})
    yield "routes", len(routes)
    yield "priced", sum("pricing" in route or "pricing" in offer for offer, route in routes)
    yield "with energy figures", len(_read(data / "energy.yaml")["energy"].keys() - FACTS)
    yield "without a public size", len(sizes["unknown"])
    yield "places", len(places["places"].keys() - FACTS)
    yield "countries", len(places["grid"].keys() - FACTS - {"WORLD"})


def _read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def main() -> None:
    """Prints a line for each."""
    for name, count in counts():
        print(f"{name:<24}{count:6,}")


if __name__ == "__main__":
    main()
