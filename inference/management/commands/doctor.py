"""Looks at what the gateway needs, and says what to do."""

import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import redis
import requests
from django.conf import settings
from django.core.mail import get_connection
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from billing.usage import partitions
from catalogue.loader import release
from catalogue.routing import snapshot
from catalogue.routing.routes import Upstream
from gateway.management.base import OperatorCommand, explain
from gateway.server import settings_warnings
from inference.dialects import DIALECTS

SECONDS = 5.0  # for each answer from elsewhere
LEAST_FREE_BYTES = 1 << 30
MOST_APART = timedelta(seconds=5)
REFUSED = (401, 403)


class CheckFailed(Exception):
    """A fault, and what to do about it."""


class Command(OperatorCommand):
    only_reads = True
    help = (
        "Looks at what the gateway needs (settings, database, migrations, catalogue, cache, disk, mail, the clock, "
        "each provider's credential) and says what to do. Exits 1 where something is wrong. Each provider gets a GET."
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
        if failed:
            raise SystemExit(1)


def _checks() -> Iterator[tuple[str, Callable[[], str]]]:
    yield from (("settings", _settings), ("database", _database), ("migrations", _migrations))
    if connection.vendor == "postgresql":
        yield "records", _records
    yield from (("cache", _cache), ("disk", _disk), ("mail", _mail), ("catalogue", _catalogue))
    if snapshot.is_loaded():
        for upstream in snapshot.current().upstreams.values():
            if upstream.configured:
                yield f"provider {upstream.slug}", lambda upstream=upstream: _provider(upstream)  # type: ignore[misc]


def _settings() -> str:
    if settings.DEBUG:
        raise CheckFailed("DEBUG is on: unset it in production.")
    if warnings := settings_warnings.current():
        raise CheckFailed(" ".join(f"{warning.message} {warning.hint}" for warning in warnings))
    return str(settings.PUBLIC_URL)


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            if connection.vendor == "postgresql":
                cursor.execute("SHOW statement_timeout")
                if settings.DATABASE_TRANSACTION_POOLING and cursor.fetchone() == ("0",):
                    raise CheckFailed("No statement ends by itself: ALTER ROLE … SET statement_timeout = '30s'.")
    except Error as error:
        if "read-only" in str(error):
            raise CheckFailed(
                "DATABASE_URL leads to a standby, which takes no writes: point it at the primary."
            ) from None
        if "startup parameter" in str(error):
            raise CheckFailed("DATABASE_URL leads to PgBouncer: set DATABASE_TRANSACTION_POOLING=true.") from None
        raise CheckFailed(f"{explain(error)} Check DATABASE_URL, and that the server is up.") from None
    return connection.vendor


def _migrations() -> str:
    try:
        executor = MigrationExecutor(connection)
        missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except Error as error:
        raise CheckFailed(explain(error)) from None
    if missing:
        raise CheckFailed(f"{missing} are not applied: run `manage.py migrate`.")
    return "all applied"


def _records() -> str:
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
        with redis.Redis.from_url(settings.SHARED_CACHE_URL, socket_timeout=SECONDS) as client:
            client.ping()
    except redis.RedisError:
        raise CheckFailed("Redis does not answer: check CACHE_URL, and that the server is up.") from None
    return "Redis answers"


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
        return f"not sent ({backend}); EMAIL_URL names a server"
    try:
        server = get_connection(timeout=SECONDS)
        server.open()
        server.close()
    except OSError as error:  # smtplib's own are among them
        raise CheckFailed(f"The server refused ({type(error).__name__}): check EMAIL_URL.") from None
    return "the server answers"


def _catalogue() -> str:
    try:
        snapshot.refresh()
    except Error as error:
        raise CheckFailed(explain(error)) from None
    offers = len(snapshot.current().offers)
    if not offers:
        raise CheckFailed("It is empty: run `manage.py seed_catalogue`.")
    old = release.warning(timezone.now().date())
    return f"{offers} offers. {old}" if old else f"{offers} offers"


def _provider(upstream: Upstream) -> str:
    asked = DIALECTS[upstream.dialect].health_request(upstream)
    try:
        with requests.Session() as session:
            session.trust_env = False  # completions know no proxy and no .netrc either
            answer = session.get(asked.url, headers=asked.headers, timeout=SECONDS, allow_redirects=False, stream=True)
    except requests.RequestException as error:
        raise CheckFailed(
            f"It cannot be reached ({type(error).__name__}): check its base_url and the way out."
        ) from None
    status, date = answer.status_code, answer.headers.get("Date")
    if status in REFUSED:
        raise CheckFailed(f"It refuses the credential ({status}): set another one in its variable and restart.")
    if date and abs(parsedate_to_datetime(date) - timezone.now()) > MOST_APART:
        raise CheckFailed(f"Its clock says {date}: this machine's is off. Run an NTP client.")
    took = round(answer.elapsed.total_seconds() * 1000)
    return f"takes the credential ({took} ms)" if status == HTTPStatus.OK else f"reachable; answered {status}"
