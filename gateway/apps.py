from typing import Any

import django_stubs_ext
from django.apps import AppConfig
from django.core import checks

from .server import settings_warnings
from .server.hooks import worker_hooks

# Django's classes take type parameters from here on. Not in the settings, which gunicorn's master reads: this imports
# what must come after gevent's patching.
django_stubs_ext.monkeypatch()


class GatewayConfig(AppConfig):
    """The floor of every other app."""

    name = "gateway"

    def ready(self) -> None:
        # Settings are complete from here on.
        from django.conf import settings

        from .edge import health, middleware
        from .edge.refusals import READINGS, overload
        from .fastpath import postgresql as prepared
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
        worker_hooks.start += [prepared.open_sessions, shared_store.open]
        worker_hooks.stop += [mail.finish, prepared.close_sessions, shared_store.close]


@checks.register(checks.Tags.caches)
def settings_are_sensible(**_options: Any) -> list[checks.CheckMessage]:
    """gunicorn's warnings at its start, for `manage.py check`."""
    return [checks.Warning(found.message, hint=found.hint, id=found.id) for found in settings_warnings.current()]


@checks.register("migrations", deploy=True)
def migrations_are_safe_on_a_live_system(**_options: Any) -> list[checks.CheckMessage]:
    """An error for each rule a migration breaks."""
    from .stores import migration_rules  # loads every migration, which a server has no use for

    return migration_rules.broken()
