"""Defines the records of served requests."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

import gateway.db.words  # noqa: F401  # adds the lookup `tags__has_word`
from accounts.models import LONGEST_TAG, MOST_TAGS, Account, ApiKey, currency_code
from catalogue.pricing import CACHE_COUNTS_DIFFER, CACHE_MISMATCH, FOOTPRINT_PLACES, TOTAL_MISMATCH, Price, cache_writes
from gateway.ids import generation_id, uuid7
from gateway.money import ExactDecimalField, MoneyField

from .terms import FrozenColumns, FrozenTerms

MALFORMED_EVENT = "malformed_event"
IMPLAUSIBLE_USAGE = "implausible_usage"
ZERO_USAGE = "zero_usage"
# The sentences that explain the codes in a record's `flags`.
FLAGS = {
    MALFORMED_EVENT: "An event of the provider's stream could not be read and was skipped.",
    TOTAL_MISMATCH: "The provider's total of tokens is not the sum of its counts, which are what is billed.",
    CACHE_MISMATCH: "The provider counted more cached than prompt tokens: all were billed at the prompt's price.",
    CACHE_COUNTS_DIFFER: "The provider's counts of cached tokens differ: the reading that costs less is billed.",
    ZERO_USAGE: "The provider counted no tokens of what it was sent or delivered, which are estimated or not billed.",
    IMPLAUSIBLE_USAGE: "The provider counted more tokens than can have been asked for, sent or delivered.",
}


class Generation(FrozenColumns):
    """Records one served request. Everything that its bill depends on is frozen in the record or in its `terms`.

    `cost` is null if the request was not billed (its usage was contradictory, or its provider broke the stream and the
    operator does not bill that): absent is not zero. Costs are in `currency`, the account's. `upstream_usage` is the
    upstream's own usage object, unchanged, in the format of `dialect`; token counts and cost can be read from it again.
    Records older than the table of terms hold the frozen columns themselves: always read these through `frozen`.
    """

    class Endpoint(models.TextChoices):
        """Lists the endpoints that can be called."""

        CHAT = "chat", "chat completion"
        COMPLETION = "completion", "text completion"
        EMBEDDING = "embedding", "embedding"
        RESPONSES = "responses", "response"
        MESSAGES = "messages", "message"

    class Ending(models.TextChoices):
        """Lists the ways in which an answer ends (`billing.ledger.endings`)."""

        FINISHED = "finished", "finished"
        STALLED = "stalled", "stalled"
        UPSTREAM_BROKE = "upstream_broke", "upstream broke"
        CLIENT_LEFT = "client_left", "client left"
        WORKER_STOPPED = "worker_stopped", "worker stopped"
        COST_UNRESOLVABLE = "cost_unresolvable", "cost unresolvable"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    created_at = models.DateTimeField()
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="generations", db_index=False)
    key = models.ForeignKey(ApiKey, on_delete=models.PROTECT, related_name="generations", db_index=False)
    alias_id = models.UUIDField(null=True)  # no foreign key: statistics outlive the alias
    endpoint = models.CharField(max_length=12, choices=Endpoint)
    ending = models.CharField(max_length=20, choices=Ending)

    requested_alias = models.CharField(max_length=80, null=True)  # noqa: DJ001  # null is absent, as in the API
    requested_auto = models.CharField(max_length=300, null=True)  # noqa: DJ001
    provider = models.CharField(max_length=100)
    model = models.CharField(max_length=255)
    region = models.CharField(max_length=16)
    routing_mode = models.CharField(max_length=10)
    routing_reason = models.CharField(max_length=40, null=True)  # noqa: DJ001
    fallback_reason = models.CharField(max_length=40, null=True)  # noqa: DJ001
    providers_attempted = models.JSONField(default=list)
    providers_skipped = models.JSONField(null=True)
    # Routes that an `auto/…` request did not use, with the rule that excluded each (`plan.ExcludedRoute`).
    routes_excluded = models.JSONField(null=True)
    tags = models.CharField(max_length=MOST_TAGS * (LONGEST_TAG + 1), null=True)  # noqa: DJ001  # the key's, as in ApiKey
    eu_sovereign = models.BooleanField(null=True)

    uncached_prompt_tokens = models.BigIntegerField()
    cache_read_tokens = models.BigIntegerField(null=True)
    cache_write_5m_tokens = models.BigIntegerField(null=True)
    cache_write_1h_tokens = models.BigIntegerField(null=True)
    completion_tokens = models.BigIntegerField()
    reasoning_tokens = models.BigIntegerField(null=True)
    prompt_tokens = models.BigIntegerField()
    interrupted = models.BooleanField()
    usage_estimated = models.BooleanField()
    dialect = models.CharField(max_length=20, null=True)  # noqa: DJ001  # the format of `upstream_usage`
    upstream_usage = models.TextField(null=True)  # noqa: DJ001  # JSON
    flags = models.CharField(max_length=100, null=True)  # noqa: DJ001  # codes of FLAGS, separated by spaces

    terms = models.ForeignKey(
        FrozenTerms, on_delete=models.PROTECT, null=True, related_name="+", db_index=False, db_constraint=False
    )  # the settling statement itself checks that the row exists: a constraint would lock this row, which many share

    currency = models.CharField(max_length=3, validators=[currency_code])
    prompt_cost = MoneyField(null=True)
    completion_cost = MoneyField(null=True)
    cost = MoneyField(null=True)
    cost_eur = MoneyField(null=True)
    balance_after = MoneyField(null=True)
    energy_wh = ExactDecimalField(places=FOOTPRINT_PLACES, null=True)
    energy_wh_low = ExactDecimalField(places=FOOTPRINT_PLACES, null=True)
    energy_wh_high = ExactDecimalField(places=FOOTPRINT_PLACES, null=True)
    energy_source = models.CharField(max_length=10, null=True)  # noqa: DJ001  # measured, provider or modelled
    embodied_gco2e = ExactDecimalField(places=FOOTPRINT_PLACES, null=True)
    carbon_gco2e = ExactDecimalField(places=FOOTPRINT_PLACES, null=True)

    duration_ms = models.BigIntegerField()
    first_token_ms = models.BigIntegerField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["key", "created_at", "id"], name="generation_by_key"),
            models.Index(fields=["account", "created_at", "id"], name="generation_by_account"),
            models.Index(fields=["alias_id", "created_at"], name="generation_by_alias", condition=~Q(alias_id=None)),
            models.Index(fields=["id"], name="generation_not_priced", condition=Q(cost=None)),
            models.Index(fields=["id"], name="generation_flagged", condition=~Q(flags=None)),
        ]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(cost=None, prompt_cost=None, completion_cost=None, cost_eur=None, balance_after=None)
                | Q(
                    cost__gte=0,
                    prompt_cost__gte=0,
                    completion_cost__gte=0,
                    cost_eur__gte=0,
                    balance_after__isnull=False,
                ),
                name="generation_priced_whole_or_not_at_all",
            ),
            models.CheckConstraint(
                condition=Q(uncached_prompt_tokens__gte=0, completion_tokens__gte=0, prompt_tokens__gte=0),
                name="generation_tokens_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return self.public_id

    @property
    def public_id(self) -> str:
        """Returns the id that clients see."""
        return generation_id(self.id)

    @property
    def route_id(self) -> str:
        """Returns the full id of the route that served the request: provider, canonical model id and region."""
        return f"{self.provider}/{self.model}/{self.region}"

    @property
    def flagged(self) -> list[str]:
        """Returns a sentence for each of the record's flags."""
        return [FLAGS.get(code, code) for code in (self.flags or "").split()]

    @property
    def total_tokens(self) -> int:
        """Returns prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cache_write_tokens(self) -> int | None:
        """Returns prompt tokens written to the cache, for any lifetime; None if the upstream did not report them."""
        return cache_writes(self.cache_write_5m_tokens, self.cache_write_1h_tokens)

    @property
    def frozen(self) -> FrozenColumns:
        try:
            return self.terms or self
        except FrozenTerms.DoesNotExist:  # `verify_ledger` reports missing terms; the rest can still be shown
            return self

    @property
    def billed_price(self) -> Price | None:
        """Returns the tier that the prompt's length selected, or the base price; None if the terms are missing."""
        return None if self.frozen.price_currency is None else self.price.for_prompt(self.prompt_tokens)
