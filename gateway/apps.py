import django_stubs_ext
from django.apps import AppConfig

from .hooks import worker_hooks

# Django's classes take type parameters from here on. Not in the settings, which gunicorn's master reads: this imports
# what must come after gevent's patching.
django_stubs_ext.monkeypatch()


class GatewayConfig(AppConfig):
    """What every other app uses: settings, errors, money, ids, the edge and the workers."""

    name = "gateway"

    def ready(self) -> None:
        # Settings are complete from here on; importing registers the checks.
        from . import checks, mail, staff_log  # noqa: F401
        from .postgresql import prepared

        staff_log.connect()
        worker_hooks.start.append(prepared.open_sessions)
        worker_hooks.stop += [mail.finish, prepared.close_sessions]
