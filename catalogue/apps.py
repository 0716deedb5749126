import time

from django.apps import AppConfig

from gateway.edge.health import needs
from gateway.server.hooks import MetricReading, Periodic, worker_hooks


class CatalogueConfig(AppConfig):
    """Connects the catalogue to the worker's hooks: snapshot, health of providers, imports."""

    name = "catalogue"

    def ready(self) -> None:
        # Models can be imported only now.
        from . import changes, figure_history, provider_outages
        from .footprint import grid_import
        from .routing import health, route_failures, snapshot, troubles

        changes.watch_tables()
        worker_hooks.start.append(snapshot.refresh)
        needs.append(snapshot.need)
        worker_hooks.known["provider"] = snapshot.callable_providers
        worker_hooks.readings += [
            MetricReading(
                "gateway_provider_refusals",
                "Requests that a provider refused because of the operator's account there.",
                lambda: troubles.refusals,
                how="counter",
                label="provider",
            ),
            MetricReading(
                "gateway_catalogue_checked_timestamp_seconds",
                "When a worker last read the catalogue's version from the database: the oldest of all workers.",
                lambda: {"": time.time() - snapshot.unchecked_seconds()} if snapshot.is_loaded() else {},
                how="livemin",
            ),
        ]
        worker_hooks.beat += [
            snapshot.refresh,
            health.flush,
            route_failures.flush,
            troubles.flush,
            Periodic(troubles.LOOK_EVERY_SECONDS, troubles.tell_staff, spread=True),
            Periodic(health.LOOK_EVERY_SECONDS, health.look),
            Periodic(provider_outages.LOOK_EVERY_SECONDS, provider_outages.look, spread=True),
            Periodic(health.DROP_EVERY_SECONDS, health.drop_old, spread=True),
            Periodic(health.DROP_EVERY_SECONDS, route_failures.drop_old, spread=True),
            Periodic(figure_history.EVERY_SECONDS, figure_history.record_new),
            Periodic(grid_import.LOOK_EVERY_SECONDS, grid_import.refresh.work),
        ]
        worker_hooks.stop += [health.flush, route_failures.flush, troubles.flush]
