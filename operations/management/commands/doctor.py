"""Implements `doctor`, which checks what the gateway needs and advises on faults."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import Any

import redis
import requests
from django.conf import settings
from django.core.mail import get_connection
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from accounts import oidc_groups
from billing.usage import partitions
from catalogue.loader import release
from catalogue.routing import snapshot
from catalogue.routing.routes import Snapshot, Upstream
from gateway.fastpath.http_client import UpstreamRequest
from gateway.management.base import OperatorCommand, explain
from gateway.management.checks import CheckDoubtful, CheckFailed, more_checks
from gateway.operator import operator
from gateway.server import settings_warnings
from inference.dialects import DIALECTS

ANSWER_SECONDS = 5.0  # the time-out for each answer of another server
LEAST_FREE_BYTES = 1 << 30
MOST_CLOCK_DIFFERENCE = timedelta(seconds=5)
REFUSED_CREDENTIAL = (401, 403)
NOT_THERE = (404, 405)
# What a provider answers to a call without content if the address and the credential are right.
EMPTY_CALL_REJECTED = (400, 422)


class Command(OperatorCommand):
    only_reads = True
    help = (
        "Checks what the gateway needs (settings, database, migrations, partitions of records, cache, disk, mail, the "
        "address for buying credit, the catalogue and its age, the transparency log, clocks, each provider's address "
        "and credential), and prints what to do. Exits 1 if a line is WRONG; a line with LOOK may be intended. It "
        "requests each provider's list of models, or sends a call without content; neither costs anything."
    )
    requires_system_checks: list[str] = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        failed = False
        for name, check in _checks():
            try:
                found = check()
                self.stdout.write(f"ok    {name}: {found}")
            except CheckFailed as fault:
                failed = True
                self.stdout.write(f"WRONG {name}: {fault}")
            except CheckDoubtful as doubt:
                self.stdout.write(f"LOOK  {name}: {doubt}")
        if failed:
            raise SystemExit(1)


def _checks() -> Iterator[tuple[str, Callable[[], str]]]:
    yield from (("settings", _settings), ("database", _database), ("migrations", _migrations))
    if connection.vendor == "postgresql":
        yield "records", _partitions
    yield from (("cache", _cache), ("disk", _disk), ("mail", _mail), ("credit", _billing_contact))
    yield from (("catalogue", _catalogue), ("release", _catalogue_age))
    if settings.OIDC_GROUPS:
        yield "groups", _groups
    yield from more_checks.items()
    if snapshot.is_loaded():
        for name, upstream in _providers_by_address(snapshot.current()):
            yield f"provider {name}", partial(_provider, upstream)


def _providers_by_address(catalogue: Snapshot) -> Iterator[tuple[str, Upstream]]:
    """Yields each configured provider once for each base URL of its routes.

    If it has several, the name also lists the regions of this one.
    """
    for upstream in catalogue.upstreams.values():
        regions: dict[str, list[str]] = {}
        for (slug, _), offer in catalogue.offers.items():
            for route in offer.routes.values() if slug == upstream.slug else ():
                regions.setdefault(route.base_url, []).append(route.locode)
        for base_url, locodes in regions.items() if upstream.configured else ():
            which = f" in {', '.join(sorted({*locodes}))}" if len(regions) > 1 else ""
            yield upstream.slug + which, replace(upstream, base_url=base_url)


def _settings() -> str:
    if settings.DEBUG:
        raise CheckFailed("DEBUG is on: unset it in production.")
    if warnings := settings_warnings.current():
        raise CheckFailed(" ".join(f"{warning.message} {warning.hint}" for warning in warnings))
    return str(settings.PUBLIC_URL)


def _groups() -> str:
    if wrong := [*oidc_groups.faults(), *oidc_groups.unknown_names()]:
        raise CheckFailed(f"{' '.join(wrong)} Until it is corrected, groups take nothing away.")
    return "OIDC_GROUPS names what exists"


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            if connection.vendor == "postgresql":
                cursor.execute("SHOW statement_timeout")
                if settings.DATABASE_TRANSACTION_POOLING and cursor.fetchone() == ("0",):
                    raise CheckFailed(
                        "Its role has no statement_timeout, so a statement may run forever: "
                        "ALTER ROLE … SET statement_timeout = '30s'."
                    )
                cursor.execute("SELECT clock_timestamp()")
                apart = cursor.fetchone()[0] - timezone.now()
                if abs(apart) > MOST_CLOCK_DIFFERENCE:
                    seconds = apart.total_seconds()
                    raise CheckFailed(f"Its clock is {seconds:+.0f} s from this machine's: run an NTP client on both.")
    except Error as error:
        if "read-only" in str(error):
            raise CheckFailed(
                "DATABASE_URL leads to a standby, which takes no writes: point it at the primary."
            ) from None
        if "startup parameter" in str(error):
            raise CheckFailed("DATABASE_URL leads to PgBouncer: set DATABASE_TRANSACTION_POOLING=true.") from None
        raise CheckFailed(f"{explain(error)} Check DATABASE_URL, and that the server is up.") from None
    if connection.vendor == "postgresql":
        return "postgresql"
    if settings.BEHIND_TLS or settings.WEB_CONCURRENCY > 1:
        raise CheckFailed("It is SQLite, for a trial with one worker: set DATABASE_URL to a PostgreSQL.")
    return f"sqlite, for a trial, in {connection.settings_dict['NAME']}"


def _migrations() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except Error as error:
        raise CheckFailed(explain(error)) from None
    if missing:
        raise CheckFailed(f"{missing} are not applied: run `manage.py migrate`.")
    return "all applied"


def _partitions() -> str:
    try:
        if fault := partitions.fault(timezone.now()):
            raise CheckFailed(fault)
        return "in partitions" if partitions.is_partitioned() else "in one table"
    except Error as error:
        raise CheckFailed(explain(error)) from None


def _cache() -> str:
    if settings.SHARED_CACHE_URL is None:
        return "each worker's own memory"
    try:
        with redis.Redis.from_url(settings.SHARED_CACHE_URL, socket_timeout=ANSWER_SECONDS, retry=None) as client:
            client.set("gateway:doctor", "", px=1000)
    except redis.ResponseError as refusal:
        raise CheckFailed(f"Redis takes no writes ({str(refusal).split(maxsplit=1)[0]}): see its log.") from None
    except redis.RedisError:
        raise CheckFailed("Redis does not answer: check CACHE_URL, and that the server is up.") from None
    return "Redis takes writes"


def _disk() -> str:
    spool = settings.GATEWAY_SPOOL_DIR
    try:
        spool.mkdir(parents=True, exist_ok=True)
        probe = spool / ".doctor"
        probe.write_text("")
        probe.unlink()
        free = shutil.disk_usage(spool).free
    except OSError as error:
        raise CheckFailed(
            f"{spool} cannot be written ({error.strerror}): give the gateway's user a GATEWAY_SPOOL_DIR."
        ) from None
    if free < LEAST_FREE_BYTES:
        raise CheckFailed(
            f"{spool} has {free >> 20} MiB left: outcomes wait there while the database is away. Make room."
        )
    return f"{free >> 30} GiB free for the spool"


def _mail() -> str:
    backend = settings.EMAIL_BACKEND.rsplit(".", maxsplit=2)[-2]
    if backend != "smtp":
        if settings.BEHIND_TLS:
            raise CheckFailed(
                f"It is not sent ({backend}), and without it no password can be set: set EMAIL_URL to a server."
            )
        return f"not sent ({backend}); EMAIL_URL names a server"
    try:
        server = get_connection(timeout=ANSWER_SECONDS)
        server.open()
        server.close()
    except OSError as error:  # smtplib's errors are OSErrors too
        raise CheckFailed(f"The server refused ({type(error).__name__}): check EMAIL_URL.") from None
    return "the server answers"


def _billing_contact() -> str:
    if operator().top_up:
        return operator().top_up
    if settings.BEHIND_TLS:
        raise CheckDoubtful("Members without credit are told of no address: set BILLING_CONTACT_URL or OPERATOR_EMAIL.")
    return "neither BILLING_CONTACT_URL nor OPERATOR_EMAIL"


def _catalogue() -> str:
    try:
        snapshot.refresh()
    except Error as error:
        raise CheckFailed(explain(error)) from None
    catalogue = snapshot.current()
    if not catalogue.offers:
        raise CheckFailed("It is empty: run `manage.py seed_catalogue`.")
    offers = [offer for offer in catalogue.offers.values() if offer.upstream.configured]
    if not offers:
        raise CheckFailed(
            f"{len(catalogue.offers)} offers, but none of their providers has its credential: set the variable that "
            "its entry names, SCALEWAY_API_KEY for example, and restart."
        )
    return f"{len(catalogue.offers)} offers, {len(offers)} of them of providers that have their credential"


def _catalogue_age() -> str:
    if old := release.warning(timezone.now().date()):
        raise CheckDoubtful(old)
    return f"the catalogue that ships is of {release.released_on()}"


def _provider(upstream: Upstream) -> str:
    dialect = DIALECTS[upstream.dialect]
    answer = _asked("GET", dialect.health_request(upstream))
    asked_for = "Its list of models"
    if answer.status_code in NOT_THERE:  # the provider has no such list, or the base_url lacks its last part
        asked_for = "Neither a list of models nor a call is answered there; it"
        answer = _asked("POST", dialect.empty_request(upstream))
        if answer.status_code in EMPTY_CALL_REJECTED:
            return f"takes the credential ({_milliseconds(answer)} ms), and has no list of models"
    status = answer.status_code
    if status in REFUSED_CREDENTIAL:
        raise CheckFailed(f"It refuses the credential ({status}): set another one in its variable and restart.")
    _compare_clocks(answer)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise CheckDoubtful("It limits requests (429), and so says nothing of the credential: try again later.")
    if status >= 500:
        raise CheckFailed(f"{asked_for} answers {status}: the provider is out of order, or its base_url is wrong.")
    if status != HTTPStatus.OK:
        raise CheckFailed(f"{asked_for} answers {status}: check its base_url, up to the version's path.")
    return f"takes the credential ({_milliseconds(answer)} ms)"


def _asked(method: str, request: UpstreamRequest) -> requests.Response:
    try:
        with requests.Session() as session:
            session.trust_env = False  # completions do not use a proxy or .netrc either
            return session.request(
                method,
                request.url,
                data=request.body or None,
                headers=request.headers,
                timeout=ANSWER_SECONDS,
                allow_redirects=False,
                stream=True,
            )
    except requests.RequestException as error:
        raise CheckFailed(
            f"It cannot be reached ({type(error).__name__}): check its base_url and the way out."
        ) from None


def _compare_clocks(answer: requests.Response) -> None:
    """Raises CheckFailed if the clock of a server that has just answered differs from ours."""
    date = answer.headers.get("Date", "")
    if "Age" in answer.headers:  # a cached answer has an old date
        return
    try:
        said = parsedate_to_datetime(date)
    except ValueError:
        return  # the date is missing or invalid
    if said.tzinfo is not None and abs(said - timezone.now()) > MOST_CLOCK_DIFFERENCE:
        raise CheckFailed(f"Its clock says {date}, which differs from this machine's: run an NTP client here.")


def _milliseconds(answer: requests.Response) -> int:
    return round(answer.elapsed.total_seconds() * 1000)
