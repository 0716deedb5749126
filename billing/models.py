"""The ledger (Wallet, LedgerEntry), the records of what was served (Generation) and their sums by day (DailyUsage).

The invariant: a wallet's balance is the sum of its ledger entries, and its seq is their number. Entries are only ever
added (`billing.ledger.entries`); the database itself refuses their update and deletion (migration 0002).

An account's DailyUsage is the sums of exactly its records with `created_at <= rolled_until` of its UsageWatermark.
`billing.usage.rollups` writes both in one transaction; `billing.usage.statistics` adds the records behind the
watermark, the raw tail. docs/growth.md says why.
"""

from typing import Any, ClassVar, NoReturn
from uuid import UUID

from django.db import models
from django.db.models import Q

from accounts.models import Account, ApiKey, currency_code
from catalogue.carbon import ENERGY_PLACES, FOOTPRINT_PLACES, EnergyFactors, GridBasis
from catalogue.footprint.energy import figures_in
from catalogue.pricing import CACHE_MISMATCH, RATE_PLACES, TOTAL_MISMATCH, Price, cache_writes, thawed_tiers
from gateway.ids import generation_id, uuid7
from gateway.money import ExactDecimalField, MoneyField, plain

from . import notices  # noqa: F401  # Django looks for an app's tables here
from .usage import request_failures  # noqa: F401  # Django looks for an app's tables here

_OF_A_DAY = ["account", "day", "key", "alias_id", "provider", "model", "region", "endpoint", "energy_source"]
NO_ALIAS = UUID(int=0)  # in place of null, which a unique constraint would let in many times
MALFORMED_EVENT = "malformed_event"
IMPLAUSIBLE_USAGE = "implausible_usage"
ZERO_USAGE = "zero_usage"
# What is odd about a record, by the code in its `flags`.
FLAGS = {
    MALFORMED_EVENT: "An event of the provider's stream could not be read and was skipped.",
    TOTAL_MISMATCH: "The provider's total of tokens is not the sum of its counts, which are what is billed.",
    CACHE_MISMATCH: "The provider counted more cached than prompt tokens: all were billed at the prompt's price.",
    ZERO_USAGE: "The provider counted no tokens of what it delivered.",
    IMPLAUSIBLE_USAGE: "The provider counted more tokens than can have been asked for, sent or delivered.",
}


class Wallet(models.Model):
    """An account's balance and the sequence number of its last ledger entry; the row that a settlement locks."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, primary_key=True)
    balance = MoneyField(default=0, editable=False)
    seq = models.BigIntegerField(default=0, editable=False)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(seq__gte=0), name="wallet_seq_not_negative")]

    def __str__(self) -> str:
        return f"{self.account}: {self.balance}"


class Generation(models.Model):
    """One served request, with everything that its bill and its statistics need, frozen at admission.

    `cost` is null where the request was never priced (contradictory usage): absent is not zero. Prices are per
    1,000,000 tokens in `price_currency`, `price_tiers` those of longer prompts (null: none); costs in `currency`, the
    account's; `cost_eur` beside them. `upstream_usage` is the upstream's own usage as it came, in the words of
    `dialect`: buckets and cost can be read from it again.
    """

    class Endpoint(models.TextChoices):
        """Which endpoint was called."""

        CHAT = "chat", "chat completion"
        COMPLETION = "completion", "text completion"
        EMBEDDING = "embedding", "embedding"
        RESPONSES = "responses", "response"
        MESSAGES = "messages", "message"

    class Ending(models.TextChoices):
        """How the answer ended."""

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
    dialect = models.CharField(max_length=20, null=True)  # noqa: DJ001  # whose words `upstream_usage` is in
    upstream_usage = models.TextField(null=True)  # noqa: DJ001  # JSON
    flags = models.CharField(max_length=100, null=True)  # noqa: DJ001  # codes of FLAGS, separated by spaces

    price_currency = models.CharField(max_length=3, validators=[currency_code])
    prompt_price = MoneyField()
    completion_price = MoneyField()
    cache_read_price = MoneyField(null=True)
    cache_write_price = MoneyField(null=True)
    cache_write_1h_price = MoneyField(null=True)
    price_tiers = models.JSONField(null=True)
    account_rate = ExactDecimalField(places=RATE_PLACES)
    eur_rate = ExactDecimalField(places=RATE_PLACES)
    energy_per_token_wh = ExactDecimalField(places=ENERGY_PLACES, null=True)
    energy_per_prompt_token_wh = ExactDecimalField(places=ENERGY_PLACES, null=True)
    energy_figures = models.JSONField(
        null=True
    )  # by kind of token with bounds: `catalogue.footprint.energy.EnergyFigures`
    grid_intensity = models.IntegerField("gCO2e per kWh", null=True)
    grid_basis = models.JSONField(null=True)  # what it rests on: `catalogue.carbon.GridBasis`

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
        """The id that clients see."""
        return generation_id(self.id)

    @property
    def route_id(self) -> str:
        """The resolved 4-part id that served the request."""
        return f"{self.provider}/{self.model}/{self.region}"

    @property
    def flagged(self) -> list[str]:
        """What it is flagged with, in words."""
        return [FLAGS.get(code, code) for code in (self.flags or "").split()]

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def cache_write_tokens(self) -> int | None:
        """Prompt tokens written to the cache, for whatever time; None where the upstream did not say."""
        return cache_writes(self.cache_write_5m_tokens, self.cache_write_1h_tokens)

    @property
    def price(self) -> Price:
        """What it was admitted at."""
        return Price(
            currency=self.price_currency,
            prompt=self.prompt_price,
            completion=self.completion_price,
            cache_read=self.cache_read_price,
            cache_write=self.cache_write_price,
            cache_write_1h=self.cache_write_1h_price,
            tiers=thawed_tiers(self.price_tiers, self.price_currency),
        )

    @property
    def billed_price(self) -> Price:
        """The tier of `price` that the length of the prompt chose, or the base price."""
        return self.price.for_prompt(self.prompt_tokens)

    @property
    def energy_factors(self) -> EnergyFactors:
        """The figures that its energy and carbon were computed from."""
        figures = None if self.energy_figures is None else figures_in(self.energy_figures)
        basis = None if self.grid_basis is None else GridBasis(**self.grid_basis)
        return EnergyFactors(
            self.energy_per_token_wh, self.energy_per_prompt_token_wh, self.grid_intensity, figures, basis
        )


class ImmutableRow(TypeError):
    """An attempt to change or remove a ledger entry. A mistake is undone by a second entry."""


class LedgerQuerySet(models.QuerySet["LedgerEntry"]):
    """Reads, and creation by `billing.ledger.entries`; nothing else."""

    def update(self, **kwargs: Any) -> NoReturn:
        raise ImmutableRow("Ledger entries are never changed.")

    def delete(self) -> NoReturn:
        raise ImmutableRow("Ledger entries are never removed.")


class LedgerEntry(models.Model):
    """One movement of an account's balance: a grant, a correction, or the usage of one generation."""

    class Kind(models.TextChoices):
        """Why the balance moved."""

        GRANT = "grant", "grant"
        CORRECTION = "correction", "correction"
        USAGE = "usage", "usage"

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="ledger", db_index=False)
    seq = models.BigIntegerField()
    kind = models.CharField(max_length=10, choices=Kind)
    amount = MoneyField()
    balance_after = MoneyField()
    generation = models.OneToOneField(Generation, on_delete=models.PROTECT, null=True, related_name="ledger_entry")
    reference = models.CharField(max_length=200, null=True)  # noqa: DJ001  # null for usage, so that it stays unique
    reason = models.TextField(null=True)  # noqa: DJ001  # staff's note on credit; members see the reference
    created_at = models.DateTimeField()

    objects = LedgerQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["account", "seq"]
        verbose_name_plural = "ledger entries"
        indexes: ClassVar = [
            # Credit, which has references, is rare among usage: both are small, and a settlement writes to neither.
            models.Index(fields=["account", "seq"], name="ledger_credit_by_account", condition=~Q(reference=None)),
            models.Index(fields=["id"], name="ledger_credit", condition=~Q(reference=None)),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["account", "seq"], name="ledger_seq_per_account"),
            models.UniqueConstraint(fields=["account", "reference"], name="one_entry_per_reference"),
            models.CheckConstraint(
                condition=Q(kind="usage", generation__isnull=False, reference=None, amount__lte=0)
                | Q(kind="grant", generation=None, reference__isnull=False, amount__gt=0)
                | Q(kind="correction", generation=None, reference__isnull=False),
                name="ledger_entry_fits_its_kind",
            ),
            models.CheckConstraint(condition=Q(seq__gt=0), name="ledger_seq_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {plain(self.amount)}, entry {self.seq} of account {self.account_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise ImmutableRow("Ledger entries are never changed.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ImmutableRow("Ledger entries are never removed.")


class Checkpoint(models.Model):
    """A stream that is open: what it has delivered so far, as it would be settled if its worker died now.

    Renewed by the worker's beat, removed by settling, claimed by the sweeper when nobody renews it.
    """

    id = models.UUIDField(primary_key=True, editable=False)  # the generation's
    frozen = models.TextField()
    beat_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return generation_id(self.id)


class OverdraftAlert(models.Model):
    """Staff have been alerted that this account is far below zero; removed once its balance is zero or more again."""

    account = models.OneToOneField(
        Account, on_delete=models.CASCADE, primary_key=True, related_name="overdraft_alert", editable=False
    )
    raised_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.account_id}: {self.raised_at:%Y-%m-%d %H:%M}"


class UsageWatermark(models.Model):
    """How far an account's records are rolled up. The row that whoever rolls them up locks."""

    account = models.OneToOneField(Account, on_delete=models.PROTECT, primary_key=True, related_name="usage_watermark")
    rolled_until = models.DateTimeField()
    # Ledger entries known to lie behind: the wallet's seq less this is about what the raw tail holds, without counting.
    entries = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.account_id}: {self.rolled_until:%Y-%m-%d %H:%M:%S}"


class DailyUsage(models.Model):
    """One UTC day of one account, key, alias, route, endpoint and source of energy. Sums are of what knows the figure.

    `cost` is in the account's currency; `priced` requests have it, and `cost_eur`. Absent is not zero: a figure that no
    request knew is a sum of zero beside a count of zero.
    """

    day = models.DateField()
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+", db_index=False)
    key = models.ForeignKey(ApiKey, on_delete=models.PROTECT, related_name="+", db_index=False)
    alias_id = models.UUIDField(default=NO_ALIAS)
    provider = models.CharField(max_length=100)
    model = models.CharField(max_length=255)
    region = models.CharField(max_length=16)
    endpoint = models.CharField(max_length=12)
    energy_source = models.CharField(max_length=10, blank=True, default="", db_default="")  # empty: not known, not kept

    requests = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField()
    interrupted = models.BigIntegerField()
    estimated = models.BigIntegerField()
    priced = models.BigIntegerField()
    cost = MoneyField()
    cost_eur = MoneyField()
    energy_known = models.BigIntegerField()
    energy_wh = ExactDecimalField(places=FOOTPRINT_PLACES)
    carbon_known = models.BigIntegerField()
    carbon_gco2e = ExactDecimalField(places=FOOTPRINT_PLACES)
    # Days from before these were added up know the times of no request.
    duration_known = models.BigIntegerField(default=0, db_default=0)
    duration_ms = models.BigIntegerField(default=0, db_default=0)
    first_token_known = models.BigIntegerField(default=0, db_default=0)
    first_token_ms = models.BigIntegerField(default=0, db_default=0)
    # Nor the bounds of any energy, what was embodied, or where the provider measured. `energy_wh_bounded` is the energy
    # that the bounds are of.
    measured = models.BigIntegerField(default=0, db_default=0)
    bounds_known = models.BigIntegerField(default=0, db_default=0)
    energy_wh_low = ExactDecimalField(places=FOOTPRINT_PLACES, default=0, db_default=0)
    energy_wh_bounded = ExactDecimalField(places=FOOTPRINT_PLACES, default=0, db_default=0)
    energy_wh_high = ExactDecimalField(places=FOOTPRINT_PLACES, default=0, db_default=0)
    embodied_known = models.BigIntegerField(default=0, db_default=0)
    embodied_gco2e = ExactDecimalField(places=FOOTPRINT_PLACES, default=0, db_default=0)

    class Meta:
        constraints: ClassVar = [
            # Begins with what an account's statistics ask for, and so is their index too.
            models.UniqueConstraint(fields=_OF_A_DAY, name="one_row_of_usage_per_day_group_and_source"),
            models.CheckConstraint(
                condition=Q(requests__gt=0, priced__gte=0, energy_known__gte=0, carbon_known__gte=0),
                name="daily_usage_counts_something",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["key", "day"], name="daily_usage_by_key"),
            models.Index(fields=["alias_id", "day"], name="daily_usage_by_alias", condition=~Q(alias_id=NO_ALIAS)),
            models.Index(fields=["day"], name="daily_usage_by_day"),  # of all accounts: the admin's first page
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.provider}/{self.model}/{self.region}: {self.requests}"
