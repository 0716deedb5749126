from typing import ClassVar

from django.db import models
from django.db.models import Q


class FigureChange(models.Model):
    """Records a change of an exchange rate, or of a figure of energy or carbon, from which terms are frozen.

    `value` is null if the catalogue no longer has the figure. Rows are only added (`catalogue.figure_history`).
    """

    subject = models.CharField(max_length=420, help_text="What the figure is of, such as `rate/USD`.")
    value = models.JSONField(null=True)
    since = models.DateTimeField()
    is_hourly = models.BooleanField(help_text="Whether it is the grid's in an hour. Most rows are.")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["subject", "since"], name="figure_change_by_subject"),
            models.Index(fields=["since"], name="figure_change_hourly", condition=Q(is_hourly=True)),
            models.Index(fields=["id"], name="figure_change_not_hourly", condition=Q(is_hourly=False)),
        ]

    def __str__(self) -> str:
        return f"{self.subject}: {self.value}"
