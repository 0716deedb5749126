"""Defines the sources of carbon intensities, and parses their answers."""

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode
from xml.etree import ElementTree

from ..models import GridSlot

MEASURED, FORECAST = GridSlot.Kind.MEASURED, GridSlot.Kind.FORECAST
MOST_GCO2_PER_KWH = 2000  # above that of any fuel
LONGEST_SLOT = timedelta(hours=1)
MOST_POINTS = 10_000
LOOK_BACK = timedelta(hours=6)

# ENTSO-E's area codes (EIC) of bidding zones, by the names in the catalogue's places; Milan is in IT-NORD.
EIC = {
    "AT": "10YAT-APG------L",
    "BE": "10YBE----------2",
    "CH": "10YCH-SWISSGRIDZ",
    "DE": "10Y1001A1001A82H",  # with Luxembourg
    "DK1": "10YDK-1--------W",
    "DK2": "10YDK-2--------M",
    "ES": "10YES-REE------0",
    "FI": "10YFI-1--------U",
    "FR": "10YFR-RTE------C",
    "IE": "10Y1001A1001A59C",
    "IT-NORD": "10Y1001A1001A73I",
    "NL": "10YNL----------L",
    "NO1": "10YNO-1--------2",
    "PL": "10YPL-AREA-----S",
    "SE1": "10Y1001A1001A44P",
    "SE2": "10Y1001A1001A45N",
    "SE3": "10Y1001A1001A46L",
    "SE4": "10Y1001A1001A47J",
}
# gCO2e per kWh by ENTSO-E's production type: lifecycle medians of IPCC AR5 WG3, Annex III, table A.III.2. Lignite,
# peat, oil shale and gas from coal have the figure of coal. Oil is not in the table: 650 (POST 2014, secondary).
# Storage (B10, B25), waste (B17) and `other` (B15, B20) have no figure and are left out of the mix.
LIFECYCLE = {
    "B01": 230,  # biomass
    "B02": 820,  # lignite
    "B03": 820,  # gas from coal
    "B04": 490,  # gas
    "B05": 820,  # hard coal
    "B06": 650,  # oil
    "B07": 820,  # oil shale
    "B08": 820,  # peat
    "B09": 38,  # geothermal
    "B11": 24,  # run of river
    "B12": 24,  # reservoirs
    "B13": 17,  # the sea
    "B14": 12,  # nuclear
    "B16": 48,  # solar, utility scale
    "B18": 12,  # wind offshore
    "B19": 11,  # wind onshore
}
LEAST_SHARE = 0.8  # the share of a slot's production that must have a figure
# energy-charts' names of the countries that shipped places are in.
ENERGY_CHARTS = {
    "AT": "at",
    "BE": "be",
    "CH": "ch",
    "DE": "de",
    "DK": "dk",
    "ES": "es",
    "FI": "fi",
    "FR": "fr",
    "IE": "ie",
    "IT": "it",
    "NL": "nl",
    "NO": "no",
    "PL": "pl",
    "SE": "se",
}
QUARTER = timedelta(minutes=15)
RESOLUTIONS = {"PT15M": QUARTER, "PT30M": timedelta(minutes=30), "PT60M": timedelta(hours=1)}


# Errors that parsing an answer in an unexpected form may raise.
MALFORMED = (
    AttributeError,
    ArithmeticError,
    ElementTree.ParseError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


class BadAnswer(ValueError):
    """The answer has an unexpected form. The message does not quote it."""


class Slot(NamedTuple):
    """Holds a figure in gCO2e per kWh, valid from `start` up to `end`."""

    start: datetime
    end: datetime
    kind: str
    gco2_per_kwh: int


@dataclass(frozen=True, slots=True)
class Source:
    """Describes a source: its address and zones, and how to request and parse them."""

    base_url: str
    zones: Mapping[str, str]
    request: Callable[[str, datetime], str]
    read: Callable[[bytes], Iterable[Slot]]
    token_env: str = ""  # the environment variable with its token, if it needs one
    token_parameter: str = ""


def slots_in(source: Source, content: bytes) -> list[Slot]:
    """Returns the slots of an answer, the earliest first. Raises BadAnswer."""
    try:
        found = sorted(source.read(content))
    except BadAnswer:
        raise
    except MALFORMED as error:
        raise BadAnswer(f"not in the source's form ({type(error).__name__})") from error
    for slot in found:
        if not timedelta(0) < slot.end - slot.start <= LONGEST_SLOT:
            raise BadAnswer("a slot that is empty or longer than an hour")
        if not 0 <= slot.gco2_per_kwh <= MOST_GCO2_PER_KWH:
            raise BadAnswer(f"a figure outside 0 to {MOST_GCO2_PER_KWH} gCO2e/kWh")
    return found


def _energy_charts(content: bytes) -> Iterator[Slot]:
    # uses the measured figure, or else the forecast
    columns = json.loads(content)
    seconds, measured = _list(columns["unix_seconds"]), _list(columns["co2eq"])
    forecast = _list(columns.get("co2eq_forecast") or [None] * len(seconds))
    starts = [datetime.fromtimestamp(second, UTC) for second in seconds]
    step = min((later - one for one, later in itertools.pairwise(starts)), default=LONGEST_SLOT)
    for start, actual, expected in zip(starts, measured, forecast, strict=True):
        yield from _known(start, start + step, actual, expected)


def _carbon_intensity(content: bytes) -> Iterator[Slot]:
    # uses the actual figure, or else the forecast
    for row in _list(json.loads(content)["data"]):
        figures = row["intensity"]
        yield from _known(_minute(row["from"]), _minute(row["to"]), figures.get("actual"), figures.get("forecast"))


def _known(start: datetime, end: datetime, measured: Any, forecast: Any) -> Iterator[Slot]:
    """Yields a slot with the measured figure, or else the forecast; nothing if both are unknown."""
    kind, figure = (FORECAST, forecast) if measured is None else (MEASURED, measured)
    if figure is not None:
        yield Slot(start, end, kind, round(figure))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > MOST_POINTS:
        raise BadAnswer("not a list, or too long a list")
    return value


def _entsoe(content: bytes) -> Iterator[Slot]:
    # A75 is generation per type. The intensity is the mean of the types' figures, weighted by production.
    # 1. Parse the document.
    text = content.decode("utf-8")
    if "<!" in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL):
        raise BadAnswer("a document type, which is not allowed")
    root = ElementTree.fromstring(text)  # noqa: S314  # no document type, so no entities
    if _name(root) == "Acknowledgement_MarketDocument":
        return  # nothing is published for this time
    if _name(root) != "GL_MarketDocument":
        raise BadAnswer("not a document about generation")
    # 2. Collect the production by type and quarter of an hour.
    produced: dict[str, dict[datetime, float]] = defaultdict(dict)
    for series in _children(root, "TimeSeries"):
        if next(_children(series, "outBiddingZone_Domain.mRID"), None) is not None:
            continue  # consumption, mostly of pumped storage
        kind = _text(_only(series, "MktPSRType"), "psrType")
        for period in _children(series, "Period"):
            produced[kind].update(_points(period, repeats=_text(series, "curveType") == "A03"))
    # 3. Compute the mean for each quarter that all types state.
    complete = set.intersection(*map(set, produced.values())) if produced else set()
    for start in complete:
        known = [(megawatts[start], LIFECYCLE[kind]) for kind, megawatts in produced.items() if kind in LIFECYCLE]
        total, with_figure = sum(each[start] for each in produced.values()), sum(power for power, _ in known)
        if with_figure > 0 and with_figure >= LEAST_SHARE * total:
            yield Slot(
                start, start + QUARTER, MEASURED, round(sum(power * grams for power, grams in known) / with_figure)
            )


def _points(period: ElementTree.Element, *, repeats: bool) -> dict[datetime, float]:
    """Returns the megawatts of each quarter of an hour, by its start."""
    interval, step = _only(period, "timeInterval"), RESOLUTIONS[_text(period, "resolution")]
    start, end = _minute(_text(interval, "start")), _minute(_text(interval, "end"))
    count = (end - start) // step
    if not 0 < count <= MOST_POINTS:
        raise BadAnswer("a period that is empty or too long")
    stated = {int(_text(point, "position")): float(_text(point, "quantity")) for point in _children(period, "Point")}
    values: dict[datetime, float] = {}
    last = None
    for position in range(1, count + 1):
        last = stated.get(position, last if repeats else None)
        if last is None:
            continue
        if not 0 <= last < float("inf"):
            raise BadAnswer("production that is not an amount")
        for quarter in range(step // QUARTER):
            values[start + (position - 1) * step + quarter * QUARTER] = last
    return values


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _children(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return (child for child in element if _name(child) == name)


def _only(element: ElementTree.Element, name: str) -> ElementTree.Element:
    found = next(_children(element, name), None)
    if found is None:
        raise BadAnswer(f"no {name}")
    return found


def _text(element: ElementTree.Element, name: str) -> str:
    return (_only(element, name).text or "").strip()


def _minute(text: str) -> datetime:
    """Parses a time such as `2026-11-22T13:00Z`."""
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?Z", text, re.ASCII):
        raise BadAnswer("a time in another form")
    return datetime.fromisoformat(text)


def _entsoe_request(area: str, now: datetime) -> str:
    until = now.replace(minute=0, second=0, microsecond=0) + LONGEST_SLOT
    since = until - LOOK_BACK
    asked = {"documentType": "A75", "processType": "A16", "in_Domain": area}
    return "/api?" + urlencode(
        {
            **asked,
            "periodStart": f"{since.astimezone(UTC):%Y%m%d%H%M}",
            "periodEnd": f"{until.astimezone(UTC):%Y%m%d%H%M}",
        }
    )


SOURCES = {
    "entsoe": Source(
        base_url="https://web-api.tp.entsoe.eu",
        zones=EIC,
        request=_entsoe_request,
        read=_entsoe,
        token_env="ENTSOE_TOKEN",  # noqa: S106  # the name of a variable
        token_parameter="securityToken",  # noqa: S106
    ),
    "energy-charts": Source(
        base_url="https://api.energy-charts.info",
        zones=ENERGY_CHARTS,
        request=lambda country, _now: f"/co2eq?{urlencode({'country': country})}",
        read=_energy_charts,
    ),
    "carbonintensity": Source(
        base_url="https://api.carbonintensity.org.uk",
        zones={"GB": "GB"},
        request=lambda _country, now: f"/intensity/{(now - LOOK_BACK).astimezone(UTC):%Y-%m-%dT%H:%MZ}/fw48h",
        read=_carbon_intensity,
    ),
}
