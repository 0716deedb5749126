"""Builds small catalogues for the tests of the catalogue's listing, and reads the listing as a customer."""

from collections.abc import Mapping
from typing import Any, Protocol

from django.http import HttpResponse

from tests.catalogue import model, provider, region
from tests.envelope import checked
from tests.seeding import Entry

Json = dict[str, Any]

NOWHERE = "http://127.0.0.1:9/v1"  # nothing here is ever called
PLACES: Json = {
    "FRPAR": {"name": "Paris", "country": "FR", "eu": True, "eea": True},
    "DEFRA": {"name": "Frankfurt am Main", "country": "DE", "eu": True, "eea": True},
    "NOOSL": {"name": "Oslo", "country": "NO", "eu": False, "eea": True},
    "USQAS": {"name": "Ashburn, VA", "country": "US", "eu": False, "eea": False},
}


class Read(Protocol):
    """Sends a GET to the API as a customer, in this process."""

    def __call__(self, path: str, **headers: str) -> HttpResponse: ...


def entries(read: Read, query: str = "") -> dict[str, Json]:
    """Returns the list's entries by id, in the list's order."""
    response = read(f"/v1/models{query}")
    assert response.status_code == 200, response.content
    listed: Json = response.json()  # type: ignore[attr-defined]  # the test client adds it
    return {entry["id"]: entry for entry in listed["data"]}


def locodes(read: Read, query: str = "") -> dict[str, list[str]]:
    """Returns each listed model with its regions, or an auto entry with its candidates."""
    return {
        model_id: entry["auto_routing"]["candidates"]
        if "auto_routing" in entry
        else [one["locode"] for one in entry["regions"]]
        for model_id, entry in entries(read, query).items()
    }


def auto(read: Read, slug: str) -> Json:
    return entries(read)[f"auto/test/{slug}"]


def error_of(response: HttpResponse) -> tuple[int, str, str | None, str | None]:
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, *checked(response.json()["error"])  # type: ignore[attr-defined]


def catalogue(*offers: Entry, providers: Mapping[str, Entry] | None = None) -> Entry:
    """Builds a file of these offers, at `sim`, which is sovereign, and at the other providers that are named."""
    others = [provider(slug, NOWHERE, **fields) for slug, fields in (providers or {}).items()]
    return {
        "exchange_rates": {"as_of": "2026-10-30", "base": "EUR", "rates": {"USD": 1.25}},
        "places": PLACES,
        "grid": {"FR": 44, "DE": 344, "NO": 30, "US": 384, "WORLD": 473},
        "providers": [provider("sim", NOWHERE), *others],
        "models": list(offers),
    }


AMERICAN: Entry = {"country": "US", "eu_native": False, "us_legal_reach": True}
SWISS: Entry = {"country": "CH", "eu_native": False}
NORWEGIAN: Entry = {"country": "NO"}

EVERYWHERE = [region("global"), region("FRPAR"), region("NOOSL"), region("USQAS")]
FILTERED = catalogue(
    model("everywhere", regions=EVERYWHERE),
    model("everywhere", provider="american", regions=EVERYWHERE),
    model("worldwide", regions=None),
    model("nordic", provider="norwegian", regions=[region("NOOSL")]),
    model("shared", regions=[region("FRPAR")]),
    model("shared", provider="american", regions=[region("FRPAR")]),
    model("neutral", regions=[region("FRPAR")]),
    model("neutral", provider="swiss", regions=[region("DEFRA")]),
    model("ours", regions=[region("FRPAR"), region("NOOSL")]),
    model("completion", modality="completion", regions=[region("DEFRA")]),
    model("embedding", modality="embedding", regions=[region("FRPAR")]),
    model("responses", modality="responses", regions=[region("FRPAR")]),
    model("realtime", modality="realtime", regions=[region("FRPAR")]),
    model("unknown", modality=None, regions=[region("FRPAR")]),
    model("either", modality="chat", regions=[region("FRPAR")]),
    model("either", provider="swiss", modality="completion", regions=[region("DEFRA")]),
    providers={"american": AMERICAN, "swiss": SWISS, "norwegian": NORWEGIAN, "idle": {}},
)
