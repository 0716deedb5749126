"""Defines the routes of offers: the table is called `Region`, since each place of an offer is one route."""

from decimal import Decimal
from typing import ClassVar

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from accounts.models import currency_code
from gateway.money import MoneyField

from .offer import OVERWRITTEN_BY_SEEDING, Model


def _price(of: str) -> "MoneyField[Decimal | str | int | None, Decimal | None]":
    return MoneyField(f"{of} price per 1M tokens", null=True, blank=True, validators=[MinValueValidator(0)])


class Region(models.Model):
    """Is a route: an offer in a place, with its prices."""

    class State(models.TextChoices):
        """Lists the states of a route. Unlike an offer, a route has no state `unavailable`."""

        SERVED = "served", "served"
        DISABLED = "disabled", "disabled"

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="regions")
    locode = models.CharField(max_length=16, help_text="UN/LOCODE, or global")
    is_default = models.BooleanField("default of the offer", default=False)
    state = models.CharField(max_length=20, choices=State, default=State.SERVED, help_text=OVERWRITTEN_BY_SEEDING)
    upstream_model = models.CharField(max_length=255, blank=True, help_text="Empty: the model's.")
    base_url = models.CharField("base URL", max_length=500, blank=True, help_text="Empty: the provider's.")
    upstream_region = models.CharField(max_length=100, blank=True)
    currency = models.CharField(max_length=3, blank=True, validators=[currency_code])
    prompt_per_1m_tokens = _price("prompt")
    completion_per_1m_tokens = _price("completion")
    cache_read_per_1m_tokens = _price("cache read")
    cache_write_per_1m_tokens = _price("cache write")
    cache_write_1h_per_1m_tokens = _price("one-hour cache write")
    batch_prompt_per_1m_tokens = _price("batch prompt")
    batch_completion_per_1m_tokens = _price("batch completion")
    price_tiers = models.JSONField(default=list, blank=True)
    grid_carbon_intensity_gco2_per_kwh = models.PositiveIntegerField(
        "grams of CO₂e per kWh", null=True, blank=True, help_text="Empty: the country's value."
    )
    energy = models.JSONField(null=True, blank=True, help_text="Empty: the model's.")
    daily_token_quota = models.PositiveBigIntegerField(default=0, help_text="Tokens per UTC day; 0: none.")

    class Meta:
        ordering: ClassVar = ["model", "locode"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["model", "locode"], name="one_route_per_model_and_place"),
            models.UniqueConstraint(fields=["model"], condition=Q(is_default=True), name="one_default_region"),
            models.CheckConstraint(condition=Q(state__in=["served", "disabled"]), name="region_state_is_known"),
            models.CheckConstraint(
                condition=Q(prompt_per_1m_tokens__gte=0) | Q(prompt_per_1m_tokens=None),
                name="prompt_price_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(completion_per_1m_tokens__gte=0) | Q(completion_per_1m_tokens=None),
                name="completion_price_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model}/{self.locode}"


PER_MILLION = "_per_1m_tokens"
PRICES = tuple(field.name for field in Region._meta.fields if field.name.endswith(PER_MILLION))
