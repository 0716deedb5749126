from typing import ClassVar

from django.db import models

from gateway.money import ExactDecimalField

from ..pricing import ENERGY_PLACES
from .names import canonical_model_id


class EnergyEstimate(models.Model):
    """Holds the energy that a canonical model takes per token, in Wh."""

    canonical_id = models.CharField(primary_key=True, max_length=255, validators=[canonical_model_id])
    energy_per_token_wh = ExactDecimalField("Wh per token", places=ENERGY_PLACES)
    figures = models.JSONField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["canonical_id"]

    def __str__(self) -> str:
        return f"{self.canonical_id}: {self.energy_per_token_wh} Wh"
