"""Hourly grid intensities are imported in the sources' own formats, apply for their time, and are used by routes."""

import io
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
import responses
from django.core.management import CommandError, call_command
from django.utils import timezone

from billing.ledger.unsettled import terms_of
from catalogue import changes
from catalogue.footprint import grid_import
from catalogue.footprint.grid import in_force
from catalogue.footprint.grid_import import MOST_BYTES
from catalogue.footprint.grid_sources import SOURCES, BadAnswer, slots_in
from catalogue.models import GridImport, GridSlot
from catalogue.pricing import GridBasis
from catalogue.routing import snapshot
from catalogue.routing.routes import Route
from catalogue.routing.selection import rank
from tests.factories import forget_snapshot
from tests.seeding import Entry, Seed
from tests.servers.grid import NOTHING, GridSources, energy_charts, generation, half_hours, series

pytestmark = pytest.mark.django_db
HOUR, QUARTER = timedelta(hours=1), timedelta(minutes=15)
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
NOW = NOON + timedelta(minutes=20)


@pytest.fixture(scope="module")
def sources() -> Iterator[GridSources]:
    server = GridSources().start()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[datetime], None]]:
    def set_to(moment: datetime) -> None:
        monkeypatch.setattr(timezone, "now", lambda: moment)

    set_to(NOW)
    forget_snapshot()
    yield set_to
    forget_snapshot()


@pytest.fixture
def imported(sources: GridSources, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the command against the server, which sends `answer` at the source's path."""
    sources.answers.clear()
    sources.asked.clear()
    monkeypatch.setenv("ENTSOE_TOKEN", "secret-of-entsoe-1234")

    def run(source: str, *arguments: str, answer: str | int | None = None) -> str:
        paths = {"entsoe": "/api", "energy-charts": "/co2eq", "carbonintensity": "/intensity"}
        if answer is not None:
            sources.answers[paths[source]] = answer
        out = io.StringIO()
        call_command("import_grid", source, "--url", sources.url, *arguments, stdout=out)
        return out.getvalue()

    return run


def stored() -> list[tuple[Any, ...]]:
    columns = ("zone", "start", "end", "kind", "gco2_per_kwh", "source")
    return list(GridSlot.objects.order_by("start", "kind").values_list(*columns))


def slot(zone: str, start: datetime, grams: int, kind: str = "measured", *, end: datetime | None = None) -> None:
    GridSlot.objects.create(
        zone=zone, start=start, end=end or start + HOUR, kind=kind, gco2_per_kwh=grams, source="entsoe"
    )


def test_energy_charts_measures_and_forecasts_by_the_quarter(
    imported: Callable[..., str], sources: GridSources
) -> None:
    answer = energy_charts(NOON, [30.4, 31.6, None], [None, None, 33.0])
    assert imported("energy-charts", "--zone", "FR", answer=answer) == "energy-charts FR: 3 slots new or changed\n"
    assert sources.asked == [("/co2eq", {"country": ["fr"]})]
    assert stored() == [
        ("FR", NOON, NOON + QUARTER, "measured", 30, "energy-charts"),
        ("FR", NOON + QUARTER, NOON + 2 * QUARTER, "measured", 32, "energy-charts"),
        ("FR", NOON + 2 * QUARTER, NOON + 3 * QUARTER, "forecast", 33, "energy-charts"),
    ]


def test_carbonintensity_says_what_was_and_what_is_expected(imported: Callable[..., str], sources: GridSources) -> None:
    imported("carbonintensity", "--zone", "GB", answer=half_hours(NOON, [(266, 263), (250, None)]))
    assert sources.asked == [("/intensity/2026-11-22T06:20Z/fw48h", {})]
    assert [row[3:5] for row in stored()] == [("measured", 263), ("forecast", 250)]


def test_entsoe_s_production_is_weighed_by_what_each_type_emits(
    imported: Callable[..., str], sources: GridSources
) -> None:
    """Nuclear emits 12 and gas 490 gCO2e/kWh; consumption by pumps is not production, and storage has no figure."""
    answer = generation(
        series("B14", NOON, NOON + HOUR, {1: 900}, curve="A03"),
        series("B04", NOON, NOON + HOUR, {1: 100}, step="PT60M"),
        series("B10", NOON, NOON + HOUR, {1: 50}, step="PT60M"),
        series("B10", NOON, NOON + HOUR, {1: 5000}, step="PT60M", domain="out"),
    )
    imported("entsoe", "--zone", "FR", answer=answer)
    assert [row[3:5] for row in stored()] == [("measured", 60)] * 4, (
        "59.8 gCO2e/kWh, rounded, for each quarter of an hour"
    )
    path, query = sources.asked[0]
    assert path == "/api"
    assert query == {
        "documentType": ["A75"],
        "processType": ["A16"],
        "in_Domain": ["10YFR-RTE------C"],
        "periodStart": ["202611220700"],
        "periodEnd": ["202611221300"],
        "securityToken": ["secret-of-entsoe-1234"],
    }


def test_a_quarter_counts_once_every_type_has_reported_it() -> None:
    answer = generation(series("B14", NOON, NOON + HOUR, {1: 900, 2: 900}), series("B04", NOON, NOON + HOUR, {1: 100}))
    assert [found.start for found in slots_in(SOURCES["entsoe"], answer.encode())] == [NOON]
    mostly_unknown = generation(series("B14", NOON, NOON + HOUR, {1: 100}), series("B20", NOON, NOON + HOUR, {1: 900}))
    assert slots_in(SOURCES["entsoe"], mostly_unknown.encode()) == []
    assert slots_in(SOURCES["entsoe"], NOTHING.encode()) == [], "an answer without data has no slots"


@pytest.mark.parametrize(
    ("source", "content"),
    [
        ("energy-charts", "<html>"),
        ("energy-charts", '{"unix_seconds": [1, 2], "co2eq": [3]}'),
        ("energy-charts", '{"unix_seconds": [1], "co2eq": [NaN]}'),
        ("energy-charts", '{"unix_seconds": [1], "co2eq": [-1]}'),
        ("energy-charts", '{"unix_seconds": [1], "co2eq": [2001]}'),
        ("energy-charts", '{"unix_seconds": [1, 86401], "co2eq": [3, 3]}'),
        ("energy-charts", "[" * 100_000),
        ("carbonintensity", '{"data": 1}'),
        ("carbonintensity", '{"data": [{"from": "today", "to": "tomorrow", "intensity": {"actual": 1}}]}'),
        ("carbonintensity", half_hours(NOON, [(None, -1)])),
        ("entsoe", "<Publication_MarketDocument/>"),
        ("entsoe", '<!DOCTYPE a [<!ENTITY b "c">]><GL_MarketDocument/>'),
        ("entsoe", "<GL_MarketDocument><TimeSeries/></GL_MarketDocument>"),
        ("entsoe", generation(series("B14", NOON, NOON + HOUR, {1: -1}))),
        ("entsoe", generation(series("B14", NOON, NOON, {1: 1}))),
        ("entsoe", generation(series("B14", NOON, NOON + HOUR, {1: 1}, step="P1Y"))),
    ],
)  # fmt: skip
def test_what_is_not_in_a_source_s_form_is_refused(source: str, content: str) -> None:
    with pytest.raises(BadAnswer):
        slots_in(SOURCES[source], content.encode())


def test_the_same_again_changes_nothing_and_a_correction_moves_the_catalogue(imported: Callable[..., str]) -> None:
    imported("energy-charts", "--zone", "FR", answer=energy_charts(NOON, [30, 31], [None, None]))
    version = changes.version()
    assert "0 slots" in imported("energy-charts", "--zone", "FR")
    assert changes.version() == version
    assert "1 slots" in imported("energy-charts", "--zone", "FR", answer=energy_charts(NOON, [30, 35], [None, None]))
    assert changes.version() == version + 1
    assert [row[4] for row in stored()] == [30, 35]


def test_a_file_is_imported_like_an_answer_and_what_is_old_goes(imported: Callable[..., str], tmp_path: Path) -> None:
    slot("FR", NOON - timedelta(days=8), 99)
    saved = tmp_path / "saved.json"
    saved.write_text(half_hours(NOON, [(266, 263)]))
    call_command("import_grid", "carbonintensity", "--zone", "GB", "--file", str(saved))
    assert [row[:2] for row in stored()] == [("GB", NOON)]


def test_a_file_is_not_imported_from_an_address(imported: Callable[..., str], tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(half_hours(NOON, [(266, 263)]))
    with pytest.raises(CommandError, match="argument --file: not allowed with argument --url"):
        imported("carbonintensity", "--zone", "GB", "--file", str(saved))
    assert stored() == []


def test_a_fault_says_what_is_wrong_and_nothing_of_the_address(
    imported: Callable[..., str], sources: GridSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(source: str, *zones: str, answer: str | int) -> str:
        with pytest.raises(CommandError) as caught:
            imported(source, *(word for zone in zones for word in ("--zone", zone)), answer=answer)
        assert GridImport.objects.get(source=source).fault == str(caught.value)
        return str(caught.value)

    assert fault("entsoe", "FR", answer=401) == "entsoe FR: it answered 401"
    assert fault("entsoe", "FR", answer=302) == "entsoe FR: it answered 302"
    assert len(sources.asked) == 2, "a redirect was followed"
    assert fault("entsoe", "FR", "SE3", answer="{") == (
        "entsoe FR: not in the source's form (ParseError); entsoe SE3: not in the source's form (ParseError)"
    )
    assert fault("energy-charts", "FR", answer=" " * (MOST_BYTES + 1)).endswith("is larger than 8388608 bytes")
    monkeypatch.delenv("ENTSOE_TOKEN")
    assert fault("entsoe", "FR", answer="") == "entsoe FR: ENTSOE_TOKEN is not set"
    with pytest.raises(CommandError, match="entsoe has no GB"):
        imported("entsoe", "--zone", "GB")
    with pytest.raises(CommandError, match=r"No route of the catalogue is in a zone of entsoe: give --zone\."):
        imported("entsoe")


@responses.activate
@pytest.mark.parametrize("error", [requests.ConnectionError, requests.exceptions.SSLError, requests.ReadTimeout])
def test_a_source_that_cannot_be_reached_is_named_without_its_address(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENTSOE_TOKEN", "secret-of-entsoe-1234")
    responses.get(f"{SOURCES['entsoe'].base_url}/api", body=error("securityToken=secret-of-entsoe-1234"))
    with pytest.raises(CommandError) as caught:
        call_command("import_grid", "entsoe", "--zone", "FR")
    assert str(caught.value) == f"entsoe FR: it cannot be reached ({error.__name__})"


def test_an_answer_that_trickles_is_given_up_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each single read succeeds, one byte at a time; the deadline is for the whole."""
    moments = itertools.count(step=3.0)
    monkeypatch.setattr(grid_import, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    trickle = Trickle(io.BytesIO(b" " * 100))
    with responses.RequestsMock() as mock:
        mock.get(f"{SOURCES['energy-charts'].base_url}/co2eq", body=trickle)
        with pytest.raises(CommandError, match="takes longer than 20 seconds"):
            call_command("import_grid", "energy-charts", "--zone", "FR")
    assert trickle.bytes_read == 7


class Trickle(io.BufferedReader):
    """Returns one byte of the body at a time."""

    bytes_read = 0

    def read1(self, size: int = -1) -> bytes:
        self.bytes_read += 1
        return super().read1(1)


def test_a_slot_is_in_force_for_its_time_and_stands_in_for_three_hours(seed: Seed) -> None:
    def figure(now: datetime) -> tuple[int, GridBasis] | None:
        return in_force(now).by_zone.get("FR")

    slot("FR", NOON, 30)
    slot("FR", NOON, 25, "forecast")
    slot("FR", NOON + HOUR, 28, "forecast")
    slot("FR", NOON - HOUR, 40)
    assert figure(NOON) == (30, GridBasis("measured", "entsoe", "2026-11-22T12:00:00.000000Z"))
    assert figure(NOON + HOUR) == (28, GridBasis("forecast", "entsoe", "2026-11-22T13:00:00.000000Z"))
    assert figure(NOON + 4 * HOUR) == (28, GridBasis("forecast", "entsoe", "2026-11-22T13:00:00.000000Z"))
    assert figure(NOON + 5 * HOUR) is None
    assert figure(NOON - 2 * HOUR) is None
    assert [in_force(now).until for now in (NOW, NOON + 4 * HOUR, NOON + 5 * HOUR)] == [
        NOON + HOUR,
        NOON + 5 * HOUR,
        None,
    ]


@pytest.fixture
def two_regions(seed: Seed, llama: Entry) -> None:
    """Seeds a model in Paris and Stockholm, whose annual figures are 44 and 36."""
    llama["models"][0]["regions"] = [{"locode": "FRPAR"}, {"locode": "SESTO"}]
    seed({**llama, "grid": {"source": "A table", "as_of": "2025-09-08", "FR": 44, "SE": 36, "WORLD": 473}})
    snapshot.refresh()


def routes() -> dict[str, Route]:
    return dict(snapshot.current().offers["acme", "meta/llama"].routes)


def test_routes_take_the_hour_s_figure_and_auto_ranks_by_it(
    two_regions: None, clock: Callable[[datetime], None]
) -> None:
    def ranked() -> list[str]:
        order = rank(list(routes().values()), snapshot.current().units_per_eur, "carbon")
        return [route.locode for route in order.routes]

    assert ranked() == ["SESTO", "FRPAR"]
    assert routes()["FRPAR"].energy.basis == GridBasis("annual", "A table", "2025-09-08")
    slot("FR", NOON, 30)
    slot("SE", NOON, 5, end=NOON + QUARTER)
    slot("SE3", NOON, 45)
    changes.bump()
    snapshot.refresh()
    assert {code: route.energy.intensity_gco2_per_kwh for code, route in routes().items()} == {"FRPAR": 30, "SESTO": 45}
    assert ranked() == ["FRPAR", "SESTO"], "the zone of Stockholm, SE3, must be used rather than the country"
    admitted = terms_of(snapshot.current(), routes()["FRPAR"], "EUR").columns
    assert (admitted["grid_intensity"], admitted["grid_basis"]["as_of"]) == (30, "2026-11-22T12:00:00.000000Z")
    before = snapshot.current()
    clock(NOON + 4 * HOUR)
    snapshot.refresh()
    assert snapshot.current() is not before, (
        "an hour that ended must change the snapshot, even if the version is the same"
    )
    assert (snapshot.current().version, ranked()) == (before.version, ["SESTO", "FRPAR"])
    later = terms_of(snapshot.current(), routes()["FRPAR"], "EUR").columns
    assert (admitted["grid_intensity"], later["grid_intensity"]) == (30, 44), (
        "a request keeps the intensity of its admission"
    )


def test_a_figure_that_the_catalogue_states_of_a_route_stays(seed: Seed, llama: Entry) -> None:
    llama["models"][0]["regions"] = [{"locode": "FRPAR", "grid_carbon_intensity_gco2_per_kwh": 12}]
    seed(llama)
    slot("FR", NOON, 30)
    snapshot.refresh()
    energy = routes()["FRPAR"].energy
    assert (energy.intensity_gco2_per_kwh, energy.basis) == (12, GridBasis("stated"))


def test_each_source_is_asked_by_one_process_every_quarter_of_an_hour(
    two_regions: None, imported: Callable[..., str], sources: GridSources, clock: Callable[[datetime], None],
    settings: Any, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def due() -> list[str]:
        return grid_import.Refresh().work()

    monkeypatch.setitem(SOURCES, "energy-charts", replace(SOURCES["energy-charts"], base_url=sources.url))
    settings.GATEWAY_GRID_SOURCES = ["energy-charts"]
    sources.answers["/co2eq"] = energy_charts(NOON, [30, 31], [None, None])
    assert (due(), due()) == (["energy-charts"], [])
    assert [query["country"] for _, query in sources.asked] == [["fr"], ["se"]], (
        "only countries of the catalogue's routes are requested"
    )
    assert GridImport.objects.get().imported_at == NOW
    clock(NOW + QUARTER)
    sources.answers["/co2eq"] = 503
    assert (due(), due()) == (["energy-charts"], [])
    row = GridImport.objects.get()
    assert (row.imported_at, row.attempted_at) == (NOW, NOW + QUARTER)
    assert row.fault == "energy-charts FR: it answered 503; energy-charts SE: it answered 503"
