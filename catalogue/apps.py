from django.apps import AppConfig

from gateway.health import needs
from gateway.hooks import worker_hooks


class CatalogueConfig(AppConfig):
    """What can be served, where, at what price; and the snapshot that routing reads."""

    name = "catalogue"

    def ready(self) -> None:
        from . import changes, health, snapshot  # models exist from here on

        changes.watch_tables()
        worker_hooks.start.append(snapshot.refresh)
        needs.append(snapshot.need)
        worker_hooks.beat += [snapshot.refresh, health.flush]
        worker_hooks.stop.append(health.flush)
