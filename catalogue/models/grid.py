"""Defines the carbon intensity of electricity: by year, and by the hour with its imports."""

from typing import ClassVar

from django.db import models
from django.db.models import Q


class GridIntensity(models.Model):
    """Holds the yearly mean carbon intensity of a country's electricity, or of `WORLD`."""

    country = models.CharField(primary_key=True, max_length=5)
    gco2_per_kwh = models.PositiveIntegerField("grams of CO₂e per kWh")
    source = models.CharField(max_length=200, blank=True, default="", db_default="")
    as_of = models.DateField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["country"]
        verbose_name_plural = "grid intensities"

    def __str__(self) -> str:
        return f"{self.country}: {self.gco2_per_kwh} gCO2e/kWh"


class GridSlot(models.Model):
    """Holds a zone's carbon intensity from `start` to `end`, as one source states it."""

    class Kind(models.TextChoices):
        MEASURED = "measured", "measured"
        FORECAST = "forecast", "forecast"

    zone = models.CharField(max_length=20)
    start = models.DateTimeField()
    end = models.DateTimeField()
    kind = models.CharField(max_length=10, choices=Kind)
    gco2_per_kwh = models.PositiveIntegerField("grams of CO₂e per kWh")
    source = models.CharField(max_length=40)

    class Meta:
        ordering: ClassVar = ["-start", "zone"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["zone", "start", "kind", "source"], name="one_figure_per_slot_and_source"),
            models.CheckConstraint(condition=Q(end__gt=models.F("start")), name="grid_slot_ends_after_its_start"),
        ]
        indexes: ClassVar = [models.Index(fields=["end"], name="grid_slot_by_end")]

    def __str__(self) -> str:
        return f"{self.zone} {self.start:%Y-%m-%d %H:%M}: {self.gco2_per_kwh} gCO2e/kWh"


class GridImport(models.Model):
    """Records the last import from a source; `fault` is empty if it succeeded."""

    source = models.CharField(primary_key=True, max_length=40)
    attempted_at = models.DateTimeField()
    imported_at = models.DateTimeField(null=True)
    fault = models.CharField(max_length=500, blank=True, default="")

    class Meta:
        ordering: ClassVar = ["source"]

    def __str__(self) -> str:
        return self.source
