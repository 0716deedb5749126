from typing import Any

import django_stubs_ext
from django.apps import AppConfig
from django.core import checks

from .server import settings_warnings
from .server.hooks import worker_hooks

# Lets Django's classes take type parameters. It is not in the settings, because gunicorn's master reads those and this
# imports modules that must be imported after gevent's patching.
django_stubs_ext.monkeypatch()


class GatewayConfig(AppConfig):
    """Connects the gateway's rooms to the worker's hooks. Every other app builds on this one."""

    name = "gateway"

    def ready(self) -> None:
        # Imported here, since these need complete settings.
        from django.conf import settings

        from . import fastpath
        from .db import sessions as prepared
        from .edge import health, middleware
        from .edge.overload import READINGS, overload
        from .fastpath.redis import shared_store
        from .observing import access_log
        from .pages import mail

        access_log.register()
        if settings.TRACES_CAN_BE_SENT:
            from .observing import tracing

            tracing.register()
        if settings.METRICS_BIND is not None:
            from .observing import metrics

            metrics.register()
            worker_hooks.known["endpoint"] = middleware.endpoints
        health.needs.append(overload.need)
        worker_hooks.beat.append(overload.report)
        worker_hooks.readings += READINGS
        if fastpath.is_on():
            worker_hooks.start.append(prepared.open_sessions)
        worker_hooks.start.append(shared_store.open)
        worker_hooks.stop += [mail.finish, prepared.close_sessions, shared_store.close]


@checks.register(checks.Tags.caches)
def settings_are_sensible(**_options: Any) -> list[checks.CheckMessage]:
    """Returns for `manage.py check` the warnings that gunicorn logs when it starts."""
    return [checks.Warning(found.message, hint=found.hint, id=found.id) for found in settings_warnings.current()]


@checks.register("migrations", deploy=True)
def migrations_are_safe_on_a_live_system(**_options: Any) -> list[checks.CheckMessage]:
    """Returns an error for each rule that a migration breaks."""
    from .db import migration_rules  # loads every migration; a server needs none of them

    return migration_rules.broken()
