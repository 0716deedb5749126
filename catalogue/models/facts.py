"""Defines the facts on what a provider does with data, each with the columns of its source and date."""

from datetime import date

from django.db import models

# The key of each fact's value in a catalogue file and in the API. Its column is `{fact}_{key}`.
FACTS = {"retention": "days", "storage": "countries", "transfer": "basis", "confidential": "kind"}


class Transfer(models.TextChoices):
    """Lists the legal bases on which data leaves the EU and EEA."""

    NONE = "none", "none: data does not leave"
    ADEQUACY = "adequacy", "adequacy decision"
    SCC = "scc", "standard contractual clauses"


class Confidential(models.TextChoices):
    """Lists the kinds of confidential computing."""

    NONE = "none", "none"
    TEE = "tee", "trusted execution environment"
    E2E = "e2e", "encrypted end to end"


def days_column(help_text: str) -> models.PositiveIntegerField[int | None, int | None]:
    """Returns the column of a retention, in days."""
    return models.PositiveIntegerField(null=True, blank=True, help_text=help_text)


def source_column() -> models.CharField[str, str]:
    """Returns the column of a fact's source."""
    return models.CharField(max_length=500, blank=True, default="", db_default="", help_text="Where it says so.")


def as_of_column() -> models.DateField[str | date | None, date | None]:
    """Returns the column of the day on which a fact's source was read."""
    return models.DateField(null=True, blank=True, help_text="When that was read.")
