"""Serves the sources of grid intensities over HTTP, in their documented formats."""

import json
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

GENERATION = "urn:iec62325.351:tc57wg16:451-6:generationloaddocument:3:0"
NOTHING = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<Acknowledgement_MarketDocument xmlns="urn:iec62325.351:tc57wg16:451-1:acknowledgementdocument:7:0">'
    "<Reason><code>999</code><text>No matching data found</text></Reason></Acknowledgement_MarketDocument>"
)


class GridSources:
    """Serves all three sources on one port.

    `answers` maps a path to its answer or to a status; `asked` lists the requests.
    """

    def __init__(self) -> None:
        self.answers: dict[str, str | int] = {}
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        sources = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # http.server calls it by this name
                parts = urlsplit(self.path)
                sources.asked.append((parts.path, parse_qs(parts.query)))
                answer = sources.answers.get("/" + parts.path.split("/")[1], 404)
                status, body = (
                    (answer, b"no: " + self.path.encode()) if isinstance(answer, int) else (200, answer.encode())
                )
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Turns off http.server's log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> Self:
        """Serves from now on, in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def energy_charts(start: datetime, measured: Iterable[float | None], forecast: Iterable[float | None]) -> str:
    """Writes the answer of `/co2eq`, with a value for each quarter of an hour."""
    columns: dict[str, Any] = {"co2eq": list(measured), "co2eq_forecast": list(forecast), "deprecated": False}
    seconds = [int((start + place * timedelta(minutes=15)).timestamp()) for place in range(len(columns["co2eq"]))]
    return json.dumps({"unix_seconds": seconds, **columns})


def half_hours(start: datetime, figures: Iterable[tuple[int | None, int | None]]) -> str:
    """Writes the answer of `/intensity/{from}/fw48h`: forecast and actual of each half hour."""
    step = timedelta(minutes=30)
    return json.dumps(
        {
            "data": [
                {
                    "from": minute(start + place * step),
                    "to": minute(start + (place + 1) * step),
                    "intensity": {"forecast": forecast, "actual": actual, "index": "moderate"},
                }
                for place, (forecast, actual) in enumerate(figures)
            ]
        }
    )


def generation(*series: str) -> str:
    """Writes the document A75, actual generation per type."""
    return f'<GL_MarketDocument xmlns="{GENERATION}">{"".join(series)}</GL_MarketDocument>'


def series(
    kind: str,
    start: datetime,
    end: datetime,
    points: dict[int, float],
    *,
    step: str = "PT15M",
    curve: str = "A01",
    domain: str = "in",
) -> str:
    """Writes one of the document's time series."""
    stated = "".join(
        f"<Point><position>{position}</position><quantity>{megawatts}</quantity></Point>"
        for position, megawatts in points.items()
    )
    return (
        f"<TimeSeries><mRID>1</mRID><{domain}BiddingZone_Domain.mRID>10YFR-RTE------C</{domain}BiddingZone_Domain.mRID>"
        f"<quantity_Measure_Unit.name>MAW</quantity_Measure_Unit.name><curveType>{curve}</curveType>"
        f"<MktPSRType><psrType>{kind}</psrType></MktPSRType><Period><timeInterval><start>{minute(start)}</start>"
        f"<end>{minute(end)}</end></timeInterval><resolution>{step}</resolution>{stated}</Period></TimeSeries>"
    )


def minute(moment: datetime) -> str:
    """Writes a time as two of the sources do."""
    return f"{moment:%Y-%m-%dT%H:%MZ}"
