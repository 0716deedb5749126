"""gunicorn's settings: `gunicorn -c python:gateway.gunicorn_conf gateway.wsgi`."""

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from gateway.observing import metrics_server
from gateway.server import open_files, reloading, settings_warnings

open_files.raise_limit()

bind = f"{settings.BIND}:{settings.PORT}"
workers = settings.WEB_CONCURRENCY
worker_class = "gateway.server.worker.GatewayWorker"
# Open streams, not threads: each costs memory, and file descriptors. Further connections wait for a free place.
worker_connections = min(10_000, open_files.fifths(2))
keepalive = 75
preload_app = False  # patched too late otherwise, and pool greenlets would survive the fork
# The worker ends its own drain first; the master's limit is only for one that hangs.
MASTERS_PATIENCE = 10
graceful_timeout = int(settings.GATEWAY_DRAIN_TIMEOUT) + MASTERS_PATIENCE
timeout = 60
accesslog = None
errorlog = "-"
if settings.LOG_FORMAT == "json":  # gunicorn's own lines too, by Django's handler
    logconfig_dict = settings.LOGGING | {
        "loggers": {"gunicorn.error": {"level": "INFO", "handlers": [], "propagate": True}},
    }
control_socket_disable = True
forwarder_headers = ""  # a client beside the gateway could otherwise put a prefix before every link, those in mails too


def on_starting(server: object) -> None:
    """Logs likely mistakes, and starts the metrics' process."""
    for warning in settings_warnings.current():
        server.log.warning("%s %s", warning.message, warning.hint)  # type: ignore[attr-defined]
    if settings.METRICS_BIND is not None:
        metrics_server.begin()


def on_reload(server: Any) -> None:
    """Reads the environment's file anew, for the workers that come; a bad value leaves the settings as they were."""
    try:
        reloading.read_settings_anew()
    except ImproperlyConfigured as error:
        server.log.error("The settings stay as they were: %s", error)  # noqa: TRY400  # a traceback says no more
        return
    server.cfg.set("workers", settings.WEB_CONCURRENCY)
    server.cfg.set("graceful_timeout", int(settings.GATEWAY_DRAIN_TIMEOUT) + MASTERS_PATIENCE)
    server.num_workers = settings.WEB_CONCURRENCY


def post_worker_init(worker: object) -> None:
    """Puts the rooms above `server` into the worker.

    Its drain ends before the master's patience, so that streams settle.
    """
    from gunicorn.http import wsgi
    from gunicorn.http.parser import RequestParser

    from .edge import refusals
    from .fastpath import http_server

    worker.cfg.set("graceful_timeout", int(settings.GATEWAY_DRAIN_TIMEOUT))  # type: ignore[attr-defined]
    worker.refusal, worker.overload = refusals.of_broken_http, refusals.overload  # type: ignore[attr-defined]
    if settings.GATEWAY_FASTPATH:
        RequestParser.mesg_class = http_server.Request
        wsgi.Response = http_server.Response


def child_exit(_server: object, worker: object) -> None:
    """Forgets the worker's gauges."""
    if settings.METRICS_BIND is not None:
        metrics_server.forget(worker.pid)  # type: ignore[attr-defined]


def worker_exit(_server: object, _worker: object) -> None:
    """Closes the pools, whose threads would keep the process."""
    from django.db import connections

    for connection in connections.all():
        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()
