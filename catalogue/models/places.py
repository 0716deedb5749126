from typing import ClassVar

from django.db import models

from .names import country_code


class Place(models.Model):
    """Describes a place that routes may name, by its UN/LOCODE."""

    code = models.CharField(primary_key=True, max_length=16)
    name = models.CharField(max_length=200)
    country = models.CharField(max_length=2, validators=[country_code])
    eu = models.BooleanField("in the EU")
    eea = models.BooleanField("in the EEA")
    grid_zone = models.CharField(
        max_length=20, blank=True, default="", db_default="", help_text="Of its electricity; empty: the country."
    )

    class Meta:
        ordering: ClassVar = ["code"]

    def __str__(self) -> str:
        return f"{self.code} {self.name}"
