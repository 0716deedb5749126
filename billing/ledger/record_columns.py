"""Lists the columns of a record, with their units and the exports that show each of them.

The admin, statements, the API's representations, the daily rollups and `verify_ledger` read this table. Each has code
of its own only for what it shows in another form, such as bounds that are an object in the API.
docs/architecture.md#a-new-figure-of-a-record lists what else a new figure needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..models import Generation


class Section(Enum):
    """Lists the headings of a record's page in the admin, in the order of the page."""

    REQUEST = None
    ROUTE = "Route"
    TOKENS = "Tokens"
    MONEY = "Money"
    FOOTPRINT = "Footprint"
    TIMING = "Timing"
    UPSTREAM = "Provider's usage"


class Export(Flag):
    """Lists the outputs that show columns of a record: statements, and objects of the API."""

    STATEMENT = auto()  # a line of a statement (docs/statements.md)
    RECORD = auto()  # GenerationRecord (docs/api.md#records)
    METRICS = auto()  # GenerationMetricsResponse
    CARBON = auto()  # `carbon_metrics` of GenerationStats
    LATENCY = auto()  # `latency` of GenerationStats
    ROUTING = auto()  # `routing_info` of GenerationStats


NOWHERE = Export(0)
STATEMENT = Export.STATEMENT
RECORD = Export.RECORD
METRICS = Export.METRICS
LATENCY = Export.LATENCY
ROUTING = Export.ROUTING
FOOTPRINT_EXPORTS = STATEMENT | RECORD | METRICS | Export.CARBON  # wherever a figure of the footprint is shown


WORDS = {"eu": "EU", "eur": "EUR", "wh": "", "gco2e": "", "ms": ""}  # instead of parts of names, in labels


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """Describes a column of a record, or a property of Generation that is shown like one (`is_computed`).

    - `section` is where the admin shows it; None if it does not.
    - `exports` lists the exports that show it, under its own name unless `names` has another.
    - `unit` stands after the figure in the admin; `currency_column` is the column that holds the unit of money.
    - `is_frozen` means that it belongs to FrozenColumns and is read from the record's terms.
    - `counted_by` is set if the figure is summed up by day. It is the column of DailyUsage that counts the requests
      that have the figure.
    - `verified_as` is what `verify_ledger` calls the figure; it is empty if the figure cannot be recomputed.
    """

    name: str
    section: Section | None = None
    exports: Export = NOWHERE
    names: Mapping[Export, str] = field(default_factory=dict)
    unit: str = ""
    currency_column: str = ""
    is_frozen: bool = False
    is_computed: bool = False
    counted_by: str = ""
    verified_as: str = ""

    @property
    def label(self) -> str:
        """Returns what people read: the name in words, without the unit, which stands after the figure."""
        words = (WORDS.get(word, word) for word in self.name.split("_"))
        return " ".join(filter(None, words))

    def name_in(self, export: Export) -> str:
        """Returns the column's name in an export."""
        return next((name for exports, name in self.names.items() if export in exports), self.name)

    def read(self, record: "Generation") -> Any:
        """Returns the record's value, from its terms if the column is frozen."""
        return getattr(record.frozen if self.is_frozen else record, self.name)

    def unit_of(self, record: "Generation") -> str:
        """Returns the unit of this record's value; empty if it has none or its currency is unknown."""
        return COLUMN_BY_NAME[self.currency_column].read(record) or "" if self.currency_column else self.unit


# The columns stand in the order in which the admin and the API show them. In statements a new column comes last,
# wherever it stands here.
RECORD_COLUMNS = (
    RecordColumn("id"),
    RecordColumn("public_id", Section.REQUEST, STATEMENT, {STATEMENT: "generation_id"}, is_computed=True),
    RecordColumn("created_at", Section.REQUEST, STATEMENT),
    RecordColumn("account_id", Section.REQUEST),
    RecordColumn("key_id", Section.REQUEST, STATEMENT),
    RecordColumn("endpoint", Section.REQUEST, STATEMENT),
    RecordColumn("ending", Section.REQUEST),
    RecordColumn("flags", Section.REQUEST),
    RecordColumn("provider", exports=STATEMENT),
    RecordColumn("model"),
    RecordColumn("region", exports=STATEMENT),
    RecordColumn("alias_id", exports=STATEMENT),
    # Tokens
    RecordColumn("prompt_tokens", Section.TOKENS, STATEMENT | METRICS, counted_by="requests"),
    RecordColumn("uncached_prompt_tokens", Section.TOKENS),
    RecordColumn(
        "cache_read_tokens",
        Section.TOKENS,
        STATEMENT,
        {STATEMENT: "cached_tokens"},
        counted_by="cache_read_known",
    ),
    RecordColumn("cache_write_5m_tokens", Section.TOKENS),
    RecordColumn("cache_write_1h_tokens", Section.TOKENS),
    RecordColumn("completion_tokens", Section.TOKENS, STATEMENT | METRICS, counted_by="requests"),
    RecordColumn("reasoning_tokens", Section.TOKENS),
    RecordColumn("total_tokens", exports=STATEMENT | METRICS, is_computed=True),
    # Money
    RecordColumn("currency", exports=STATEMENT),
    RecordColumn(
        "cost",
        Section.MONEY,
        STATEMENT,
        currency_column="currency",
        counted_by="priced",
        verified_as="cost",
    ),
    RecordColumn("prompt_cost", Section.MONEY, currency_column="currency", verified_as="prompt cost"),
    RecordColumn("completion_cost", Section.MONEY, currency_column="currency", verified_as="completion cost"),
    RecordColumn(
        "cost_eur",
        Section.MONEY,
        STATEMENT | RECORD,
        {RECORD: "cost"},
        unit="EUR",
        counted_by="priced",
        verified_as="cost in EUR",
    ),
    RecordColumn("balance_after", Section.MONEY, STATEMENT, currency_column="currency"),
    RecordColumn("terms_id"),
    RecordColumn("price_currency", is_frozen=True),
    RecordColumn("prompt_price", Section.MONEY, currency_column="price_currency", is_frozen=True),
    RecordColumn("completion_price", Section.MONEY, currency_column="price_currency", is_frozen=True),
    RecordColumn("cache_read_price", Section.MONEY, currency_column="price_currency", is_frozen=True),
    RecordColumn("cache_write_price", Section.MONEY, currency_column="price_currency", is_frozen=True),
    RecordColumn("cache_write_1h_price", Section.MONEY, currency_column="price_currency", is_frozen=True),
    RecordColumn("price_tiers", Section.MONEY, is_frozen=True),
    RecordColumn("eur_rate", Section.MONEY, unit="EUR", is_frozen=True),
    RecordColumn("account_rate", Section.MONEY, currency_column="currency", is_frozen=True),
    # Energy and carbon
    RecordColumn(
        "energy_wh",
        Section.FOOTPRINT,
        FOOTPRINT_EXPORTS,
        unit="Wh",
        counted_by="energy_known",
        verified_as="energy in Wh",
    ),
    RecordColumn(
        "energy_wh_low",
        Section.FOOTPRINT,
        STATEMENT,
        unit="Wh",
        counted_by="bounds_known",
        verified_as="lowest energy in Wh",
    ),
    RecordColumn(
        "energy_wh_high",
        Section.FOOTPRINT,
        STATEMENT,
        unit="Wh",
        counted_by="bounds_known",
        verified_as="highest energy in Wh",
    ),
    RecordColumn("energy_source", Section.FOOTPRINT, FOOTPRINT_EXPORTS, verified_as="energy source"),
    RecordColumn(
        "carbon_gco2e",
        Section.FOOTPRINT,
        FOOTPRINT_EXPORTS,
        unit="g CO2e",
        counted_by="carbon_known",
        verified_as="carbon in g",
    ),
    RecordColumn(
        "embodied_gco2e",
        Section.FOOTPRINT,
        STATEMENT,
        unit="g CO2e",
        counted_by="embodied_known",
        verified_as="embodied carbon in g",
    ),
    RecordColumn("energy_per_token_wh", unit="Wh", is_frozen=True),
    RecordColumn("energy_per_prompt_token_wh", unit="Wh", is_frozen=True),
    RecordColumn(
        "grid_intensity",
        Section.FOOTPRINT,
        FOOTPRINT_EXPORTS,
        {STATEMENT: "grid_gco2_per_kwh", FOOTPRINT_EXPORTS & ~STATEMENT: "grid_carbon_intensity_gco2_per_kwh"},
        unit="g CO2e/kWh",
        is_frozen=True,
    ),
    RecordColumn("grid_basis", Section.FOOTPRINT, is_frozen=True),
    RecordColumn("energy_figures", Section.FOOTPRINT, is_frozen=True),
    # Whether the answer was cut off or its tokens estimated, how the request was routed, and its tags
    RecordColumn("interrupted", exports=STATEMENT | RECORD),
    RecordColumn("usage_estimated", Section.TOKENS, STATEMENT | RECORD),
    RecordColumn("route_id", Section.ROUTE, STATEMENT, {STATEMENT: "model"}, is_computed=True),
    RecordColumn("requested_auto", Section.ROUTE, STATEMENT | RECORD),
    RecordColumn("requested_alias", Section.ROUTE, STATEMENT | RECORD),
    RecordColumn("routing_mode", Section.ROUTE, RECORD | ROUTING),
    RecordColumn("routing_reason", Section.ROUTE, ROUTING),
    # `routing_info` shows whether there is a reason, not the text (billing/usage/representations.py).
    RecordColumn("fallback_reason", Section.ROUTE, ROUTING, {ROUTING: "fallback_occurred"}),
    RecordColumn("providers_attempted", Section.ROUTE, ROUTING),
    RecordColumn("providers_skipped", Section.ROUTE, ROUTING),
    RecordColumn("routes_excluded", Section.ROUTE, RECORD | ROUTING),
    RecordColumn("tags", Section.REQUEST, STATEMENT),
    RecordColumn("eu_sovereign", Section.ROUTE),
    # Times
    RecordColumn(
        "duration_ms",
        Section.TIMING,
        RECORD | METRICS | LATENCY,
        {METRICS | LATENCY: "request_duration_ms"},
        unit="ms",
        counted_by="duration_known",
    ),
    RecordColumn(
        "first_token_ms",
        Section.TIMING,
        LATENCY,
        {LATENCY: "time_to_first_token_ms"},
        unit="ms",
        counted_by="first_token_known",
    ),
    # What the provider reported
    RecordColumn("dialect", Section.UPSTREAM),
    RecordColumn("upstream_usage", Section.UPSTREAM),
)
COLUMN_BY_NAME = {column.name: column for column in RECORD_COLUMNS}
# The columns whose sums by day are kept.
ROLLED_UP = tuple(column for column in RECORD_COLUMNS if column.counted_by)


def exported(export: Export) -> dict[str, RecordColumn]:
    """Returns the columns that an export shows, by the names that they have there, in the table's order."""
    return {column.name_in(export): column for column in RECORD_COLUMNS if export in column.exports}
