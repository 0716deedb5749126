from typing import ClassVar

from django.db import models
from django.db.models import Q


class CatalogueVersion(models.Model):
    """Holds, in its only row, a number that every change of the catalogue increases; workers poll it."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="one_catalogue_version")]

    def __str__(self) -> str:
        return str(self.version)
