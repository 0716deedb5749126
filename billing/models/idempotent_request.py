"""Defines the table of requests that were sent with an `Idempotency-Key`."""

from typing import ClassVar

from django.db import models

from gateway.ids import generation_id


class IdempotentRequest(models.Model):
    """Holds one use of an `Idempotency-Key`, so that a repetition is neither served nor billed again for a day.

    `id` is the id of the generation that the request becomes. While it runs, its worker renews `beat_at`. A request
    that ends without a bill is removed. Neither the key nor the body is stored, only their digests.
    """

    id = models.UUIDField(primary_key=True, editable=False)
    # No foreign-key constraint: a request must not wait because its API key is being changed.
    key = models.ForeignKey(
        "accounts.ApiKey", on_delete=models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    endpoint = models.CharField(max_length=12)  # as in Generation
    name_digest = models.BinaryField(max_length=32)  # SHA-256 of the header's value
    body_digest = models.BinaryField(max_length=32)  # SHA-256 of the body as it was sent
    # The id of the request that holds the row: `id`, or the id of a later request that has taken the row over.
    claimed_by = models.UUIDField(null=True)
    created_at = models.DateTimeField(db_index=True)
    beat_at = models.DateTimeField()
    is_billed = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["key", "endpoint", "name_digest"], name="one_request_of_an_idempotency_key")
        ]

    def __str__(self) -> str:
        return generation_id(self.id)
