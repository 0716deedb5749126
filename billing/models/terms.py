"""Defines the prices, rates and energy factors that a request was admitted at."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson
from django.db import models
from django.utils.functional import cached_property

from accounts.models import currency_code
from catalogue.footprint.energy import figures_in
from catalogue.pricing import ENERGY_PLACES, RATE_PLACES, EnergyFactors, GridBasis, Price, thawed_tiers
from gateway.money import ExactDecimalField, MoneyField


class FrozenColumns(models.Model):
    """Holds the prices per 1,000,000 tokens, exchange rates and energy factors in force when a request was admitted."""

    price_currency = models.CharField(max_length=3, validators=[currency_code], null=True)  # noqa: DJ001
    prompt_price = MoneyField(null=True)
    completion_price = MoneyField(null=True)
    cache_read_price = MoneyField(null=True)
    cache_write_price = MoneyField(null=True)
    cache_write_1h_price = MoneyField(null=True)
    price_tiers = models.JSONField(null=True)  # prices for longer prompts
    account_rate = ExactDecimalField(places=RATE_PLACES, null=True)
    eur_rate = ExactDecimalField(places=RATE_PLACES, null=True)
    energy_per_token_wh = ExactDecimalField(places=ENERGY_PLACES, null=True)
    energy_per_prompt_token_wh = ExactDecimalField(places=ENERGY_PLACES, null=True)
    energy_figures = models.JSONField(null=True)  # Wh by kind of token, with bounds: `EnergyFigures.stored`
    grid_intensity = models.IntegerField("gCO2e per kWh", null=True)
    grid_basis = models.JSONField(null=True)  # `GridBasis`, as a dict

    class Meta:
        abstract = True

    @property
    def frozen(self) -> "FrozenColumns":
        """Returns the row that holds the frozen columns: this one, or a record's terms."""
        return self

    @property
    def price(self) -> Price:
        """Returns the base price and its tiers for longer prompts."""
        kept: Any = self.frozen
        return Price(
            currency=kept.price_currency,
            prompt=kept.prompt_price,
            completion=kept.completion_price,
            cache_read=kept.cache_read_price,
            cache_write=kept.cache_write_price,
            cache_write_1h=kept.cache_write_1h_price,
            tiers=thawed_tiers(kept.price_tiers, kept.price_currency),
        )

    @property
    def energy_factors(self) -> EnergyFactors:
        """Returns the factors that energy and carbon were computed from."""
        return self.frozen._energy_factors

    @cached_property
    def _energy_factors(self) -> EnergyFactors:
        kept: Any = self
        figures = None if kept.energy_figures is None else figures_in(kept.energy_figures)
        basis = None if kept.grid_basis is None else GridBasis(**kept.grid_basis)
        return EnergyFactors(
            kept.energy_per_token_wh, kept.energy_per_prompt_token_wh, kept.grid_intensity, figures, basis
        )


_FROZEN_FIELDS = FrozenColumns._meta.fields
FROZEN = tuple(field.attname for field in _FROZEN_FIELDS)


class FrozenTerms(FrozenColumns):
    """Holds frozen columns that many records share: one row per content. Triggers keep it from change."""

    id = models.UUIDField(primary_key=True, editable=False)  # a hash of the content, the same in every worker

    def __str__(self) -> str:
        return str(self.id)

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> "FrozenTerms":
        """Makes the unsaved row of these columns, which are named as in FROZEN."""
        terms = cls(**{name: columns[name] for name in FROZEN})
        terms.id = content_id({field.attname: field.get_prep_value(columns[field.attname]) for field in _FROZEN_FIELDS})
        return terms


def content_id(stored: Mapping[str, Any]) -> UUID:
    """Computes the id of terms from their stored columns. Null columns do not count, so a new one changes no old id."""
    known = {name: value for name, value in stored.items() if value is not None}
    return UUID(bytes=sha256(orjson.dumps(known, option=orjson.OPT_SORT_KEYS)).digest()[:16])
