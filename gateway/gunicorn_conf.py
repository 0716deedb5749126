"""Configures gunicorn: `gunicorn -c python:gateway.gunicorn_conf gateway.wsgi`."""

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
# Greenlets, not threads: each costs memory and file descriptors. Further connections wait for a free place.
worker_connections = min(10_000, open_files.fifths(2))
keepalive = 75
preload_app = False  # else gevent would patch too late, and the pools' greenlets would not survive the fork
# The worker ends its own drain first; the master's limit is for a worker that hangs.
MASTERS_PATIENCE = 10
graceful_timeout = int(settings.GATEWAY_DRAIN_TIMEOUT) + MASTERS_PATIENCE
timeout = 60
accesslog = None
errorlog = "-"
if settings.LOG_FORMAT == "json":  # sends gunicorn's own lines to Django's handler
    logconfig_dict = settings.LOGGING | {
        "loggers": {"gunicorn.error": {"level": "INFO", "handlers": [], "propagate": True}},
    }
control_socket_disable = True
forwarder_headers = ""  # else a client on this machine could put a prefix before every link, also in mails


def on_starting(server: object) -> None:
    """Logs warnings about the settings, and starts the metrics' process."""
    for warning in settings_warnings.current():
        server.log.warning("%s %s", warning.message, warning.hint)  # type: ignore[attr-defined]
    if settings.METRICS_BIND is not None:
        metrics_server.begin()


def on_reload(server: Any) -> None:
    """Reads the environment's file again for new workers; if a value is bad, the settings stay as they were."""
    try:
        reloading.read_settings_anew()
    except ImproperlyConfigured as error:
        server.log.error("The settings stay as they were: %s", error)  # noqa: TRY400  # a traceback adds nothing
        return
    server.cfg.set("workers", settings.WEB_CONCURRENCY)
    server.cfg.set("graceful_timeout", int(settings.GATEWAY_DRAIN_TIMEOUT) + MASTERS_PATIENCE)
    server.num_workers = settings.WEB_CONCURRENCY


def post_worker_init(worker: object) -> None:
    """Gives the worker its refusals and the fast HTTP server, which the room `server` must not import.

    Also ends the worker's drain before the master loses patience, so that streams are settled.
    """
    from gunicorn.http import wsgi
    from gunicorn.http.parser import RequestParser

    from . import fastpath
    from .edge import broken_http, overload
    from .fastpath import http_server

    worker.cfg.set("graceful_timeout", int(settings.GATEWAY_DRAIN_TIMEOUT))  # type: ignore[attr-defined]
    worker.refusal_of, worker.overload = broken_http.refusal_of, overload.overload  # type: ignore[attr-defined]
    if fastpath.is_on():
        RequestParser.mesg_class = http_server.Request
        wsgi.Response = http_server.Response


def child_exit(_server: object, worker: object) -> None:
    """Drops the gauges of a worker that has exited."""
    if settings.METRICS_BIND is not None:
        metrics_server.forget(worker.pid)  # type: ignore[attr-defined]


def worker_exit(_server: object, _worker: object) -> None:
    """Closes the connection pools, whose threads would keep the process alive."""
    from django.db import connections

    for connection in connections.all():
        connection.close()
        if hasattr(connection, "close_pool"):
            connection.close_pool()
