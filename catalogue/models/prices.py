"""Defines exchange rates and the history of prices."""

from decimal import Decimal
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from accounts.models import currency_code
from gateway.money import ExactDecimalField, MoneyField

from ..pricing import RATE_PLACES


class ExchangeRate(models.Model):
    """Holds how many units of a currency 1 EUR is."""

    currency = models.CharField(primary_key=True, max_length=3, validators=[currency_code])
    units_per_eur = ExactDecimalField(places=RATE_PLACES)
    as_of = models.DateField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["currency"]
        constraints: ClassVar = [models.CheckConstraint(condition=Q(units_per_eur__gt=0), name="rate_above_zero")]

    def __str__(self) -> str:
        return f"1 EUR = {self.units_per_eur} {self.currency}"


class PriceChange(models.Model):
    """Records a change of a price, and stays when its route is removed."""

    class Via(models.TextChoices):
        """Lists the ways to change a price."""

        SEED = "seed", "seeding"
        ADMIN = "admin", "the admin"

    route = models.CharField(max_length=400, help_text="The 4-part id.")
    region = models.ForeignKey(
        "catalogue.Region", on_delete=models.SET_NULL, null=True, editable=False, related_name="price_changes"
    )
    field = models.CharField("price", max_length=60)
    currency_old = models.CharField(max_length=3, blank=True)
    old: "MoneyField[Decimal | None, Decimal | None]" = MoneyField(null=True)
    currency_new = models.CharField(max_length=3, blank=True)
    new: "MoneyField[Decimal | None, Decimal | None]" = MoneyField(null=True)
    changed_at = models.DateTimeField()
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, editable=False, related_name="+"
    )
    changed_by_name = models.CharField("changed by", max_length=254, blank=True)
    via = models.CharField(max_length=10, choices=Via)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["route", "id"], name="price_change_by_route")]

    def __str__(self) -> str:
        return f"{self.route}: {self.field}"
