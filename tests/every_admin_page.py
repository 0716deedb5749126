"""Lists every page of the admin, with a row in each table, so that a new table or view is included automatically."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.contrib import admin
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.urls import URLPattern, reverse

from accounts.models import Account
from billing.policies import Holder, set_policy
from catalogue import models
from tests.every_page import Acme, Page

GENERAL = {"app_label": "accounts", "url": "nothing/here"}
ROUTE = "sim/demo/echo/global"


def open_catalogue() -> None:
    """Writes a row into each table of the catalogue."""
    provider = models.Provider.objects.create(slug="sim", name="Sim", country="FR", dialect="openai")
    model = models.Model.objects.create(provider=provider, canonical_id="demo/echo", name="Echo", upstream_model="echo")
    models.Region.objects.create(model=model, locode="global")
    models.Place.objects.create(code="FRPAR", name="Paris", country="FR", eu=True, eea=True)
    models.GridIntensity.objects.create(country="FR", gco2_per_kwh=44)
    models.EnergyEstimate.objects.create(canonical_id="demo/echo", energy_per_token_wh="0.0002")
    models.ExchangeRate.objects.create(currency="USD", units_per_eur="1.1")
    moment = datetime(2026, 10, 30, tzinfo=UTC)
    models.GridSlot.objects.create(
        zone="FR", start=moment, end=moment + timedelta(hours=1), kind="measured", gco2_per_kwh=30, source="entsoe"
    )
    models.GridImport.objects.create(source="entsoe", attempted_at=moment)
    models.PriceChange.objects.create(route=ROUTE, field="prompt_per_1m_tokens", changed_at=moment, via="seeding")


def pages(acme: Acme) -> list[Page]:
    """Returns every page of the admin; the pages of a row use a row that exists."""
    open_catalogue()
    set_policy(Holder.of_tag(acme.account, "team=search"), {"rpm": 60})
    LogEntry.objects.create(user=acme.owner.user, action_flag=ADDITION, object_id="1", object_repr="a row")
    return [*_general(acme), *(page for table in admin.site._registry for page in _of(table))]


def _general(acme: Acme) -> Iterator[Page]:
    known = GENERAL | {
        "content_type_id": str(ContentType.objects.get_for_model(Account).pk),
        "object_id": str(acme.account.pk),
    }
    for pattern in admin.site.get_urls():
        if isinstance(pattern, URLPattern) and pattern.name:
            arguments = {name: known[name] for name in pattern.pattern.regex.groupindex}
            yield Page(pattern.name, reverse(f"admin:{pattern.name}", kwargs=arguments))


def _of(table: type[Model]) -> Iterator[Page]:
    row = table._default_manager.order_by("pk").first()
    assert row is not None, f"{table} has no row: make one above"
    for pattern in admin.site._registry[table].get_urls():
        if pattern.name:
            arguments = [row.pk for _ in pattern.pattern.regex.groupindex]
            yield Page(pattern.name, reverse(f"admin:{pattern.name}", args=arguments))
