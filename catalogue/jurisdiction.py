"""Where a route is and whose law reaches it: the three filters of the catalogue, and EU sovereignty."""

from collections.abc import Callable

from .routes import Route

EU_MEMBERS = frozenset(
    "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK".split()  # noqa: SIM905
)


def is_eu_sovereign(route: Route) -> bool:
    """An EU provider, not controlled from outside and beyond the reach of US law, serving from an EU or EEA region."""
    upstream, place = route.upstream, route.place
    return (
        upstream.eu_native
        and not upstream.us_legal_reach
        and upstream.country in EU_MEMBERS
        and place is not None
        and (place.eu or place.eea)
    )


def is_cloud_act_free(route: Route) -> bool:
    """A provider entity outside the reach of US law."""
    return not route.upstream.us_legal_reach


def is_eu_hosted(route: Route) -> bool:
    """Served from a place in the EU; `global` is no place."""
    return route.place is not None and route.place.eu


FILTERS: dict[str, Callable[[Route], bool]] = {
    "cloud-act-free": is_cloud_act_free,
    "eu-sovereign": is_eu_sovereign,
    "eu-hosted": is_eu_hosted,
}
