"""Defines the table of requests that were refused or failed, and their counts by day."""

from typing import ClassVar
from uuid import UUID

from django.db import models

from gateway.ids import generation_id, request_id
from gateway.observing.request_events import Outcome

NOBODY = UUID(int=0)  # instead of null, since a unique constraint allows any number of nulls
LONGEST_ASKED, LONGEST_MESSAGE = 300, 600  # characters


class RequestFailure(models.Model):
    """Describes a request that got an error or whose stream broke, without its content. It does not affect any bill."""

    # `id` is the request's id, and also the generation's if one was settled (`has_record`). `asked` is the model as the
    # client wrote it, `message` the error's text: both cut short, without secrets and control characters. `provider`,
    # `model` and `region` belong to the route that was tried last, or else are the requested ones if the catalogue has
    # them; `provider` is `auto` if none was chosen. `repeated` counts the following failures of this account and code
    # that have no row of their own.

    id = models.UUIDField(primary_key=True, editable=False)
    created_at = models.DateTimeField()  # when the request was complete
    # No foreign-key constraint: writing a failure must not fail or wait because its account is being changed.
    account = models.ForeignKey(
        "accounts.Account", on_delete=models.CASCADE, null=True, related_name="+", db_index=False, db_constraint=False
    )
    key = models.ForeignKey(
        "accounts.ApiKey", on_delete=models.CASCADE, null=True, related_name="+", db_index=False, db_constraint=False
    )
    alias_id = models.UUIDField(null=True)
    endpoint = models.CharField(max_length=100, blank=True, help_text="The path below /v1; empty for unknown paths.")
    asked = models.CharField("model asked for", max_length=LONGEST_ASKED, blank=True)
    provider = models.CharField(max_length=100, blank=True)
    model = models.CharField(max_length=255, blank=True)
    region = models.CharField(max_length=16, blank=True)
    status = models.PositiveSmallIntegerField()
    outcome = models.CharField(max_length=12, choices=[(each.value, each.value.replace("_", " ")) for each in Outcome])
    code = models.CharField(max_length=100, blank=True)
    message = models.CharField(max_length=LONGEST_MESSAGE, blank=True)
    upstream_status = models.IntegerField(null=True)  # of the last attempt; null: no attempt or no answer
    duration_ms = models.BigIntegerField()
    has_record = models.BooleanField()
    repeated = models.BigIntegerField(default=0)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["account", "created_at", "id"], name="failure_by_account"),
            models.Index(fields=["key", "created_at", "id"], name="failure_by_key"),
            models.Index(fields=["provider", "created_at", "id"], name="failure_by_provider"),
            models.Index(fields=["created_at", "id"], name="failure_by_time"),
        ]

    def __str__(self) -> str:
        return self.request_id

    @property
    def request_id(self) -> str:
        return request_id(self.id)

    @property
    def generation_id(self) -> str | None:
        return generation_id(self.id) if self.has_record else None

    @property
    def route_id(self) -> str:
        return "/".join(part for part in (self.provider, self.model, self.region) if part)


class FailureDay(models.Model):
    """Counts the requests of one UTC day that failed in one way. An unknown value is NOBODY or empty."""

    # Columns are as in DailyUsage, which counts served requests. Broken streams, and requests whose clients left after
    # the first output, are in both.

    day = models.DateField()
    account_id = models.UUIDField(default=NOBODY)
    key_id = models.UUIDField(default=NOBODY)
    alias_id = models.UUIDField(default=NOBODY)
    endpoint = models.CharField(max_length=100, blank=True)  # as in RequestFailure
    provider = models.CharField(max_length=100, blank=True)
    model = models.CharField(max_length=255, blank=True)
    region = models.CharField(max_length=16, blank=True)
    status = models.PositiveSmallIntegerField()
    outcome = models.CharField(max_length=12)
    requests = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            # The first columns are those that an account's statistics filter by, so this is their index too.
            models.UniqueConstraint(
                fields=[
                    *("account_id", "day", "key_id", "alias_id", "endpoint"),
                    *("provider", "model", "region", "status", "outcome"),
                ],
                name="one_row_of_failures_per_day_and_group",
            )
        ]
        indexes: ClassVar = [models.Index(fields=["day"], name="failures_by_day")]

    def __str__(self) -> str:
        return f"{self.day} {self.outcome} {self.status}: {self.requests}"
