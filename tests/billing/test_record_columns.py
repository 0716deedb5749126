"""`billing.ledger.record_columns` has every column of a record once, and all code that shows a record uses it."""

from dataclasses import fields

from billing.ledger.record_columns import COLUMN_BY_NAME, RECORD_COLUMNS, ROLLED_UP
from billing.ledger.unsettled import RequestColumns
from billing.models import FROZEN, DailyUsage, FrozenTerms, Generation
from billing.usage import statement
from billing.usage.recomputation import COSTS, FOOTPRINT, Record
from billing.usage.rollups import GROUP, KNOWN_BY, SINCE_THE_FIRST_DAY, SUMS
from billing.usage.statistics import Totals
from billing.usage.times import Kind
from catalogue.pricing import Footprint

STORED = [column for column in RECORD_COLUMNS if not column.is_computed]
OF_THE_ROUTE = {"provider", "model", "region", "dialect", "currency"}
DECIDED_BY_SETTLING = {"created_at", "balance_after", "terms_id"}
REQUIRED_SINCE_THE_FIRST_VERSION = {
    "id",
    "created_at",
    "account_id",
    "key_id",
    "endpoint",
    "ending",
    "provider",
    "model",
    "region",
    "routing_mode",
    "providers_attempted",
    "uncached_prompt_tokens",
    "completion_tokens",
    "prompt_tokens",
    "interrupted",
    "usage_estimated",
    "currency",
    "duration_ms",
}
STATEMENT_HEADER = (
    "line,generation_id,created_at,key,endpoint,model,provider,region,requested_alias,requested_auto,alias_id,"
    "prompt_tokens,completion_tokens,total_tokens,usage_estimated,interrupted,ledger_seq,currency,cost,balance_after,"
    "cost_eur,price_above_prompt_tokens,energy_wh,carbon_gco2e,energy_wh_low,energy_wh_high,energy_source,"
    "energy_method,embodied_gco2e,cached_tokens,wh_per_output_token,wh_per_prompt_token,wh_per_cached_token,"
    "grid_gco2_per_kwh,grid_kind,grid_source,grid_as_of,since,until,requests,requests_unpriced,"
    "requests_without_energy,requests_without_carbon,opening_balance,credits,closing_balance,reconciled,key_id,tags,"
    "log_index,log_checkpoint\r\n"
)


def test_every_stored_column_is_listed_once() -> None:
    assert len(COLUMN_BY_NAME) == len(RECORD_COLUMNS)
    assert {column.name for column in STORED} == {field.attname for field in Generation._meta.concrete_fields}


def test_computed_columns_are_properties() -> None:
    computed = [column.name for column in RECORD_COLUMNS if column.is_computed]
    assert all(isinstance(getattr(Generation, name), property) for name in computed)


def test_the_columns_of_the_terms_are_frozen() -> None:
    assert {column.name for column in RECORD_COLUMNS if column.is_frozen} == set(FROZEN)


def test_every_column_is_settled() -> None:
    settled = {*RequestColumns._fields, *FROZEN, *OF_THE_ROUTE, *DECIDED_BY_SETTLING}
    assert {column.name for column in STORED} == settled


def test_a_new_column_can_be_absent_from_the_spool_and_from_inserts_of_the_version_before() -> None:
    required = [field for field in Generation._meta.concrete_fields if not field.null]
    has_both = {field.attname for field in required if field.has_default() and field.has_db_default()}
    assert {field.attname for field in required} - has_both <= REQUIRED_SINCE_THE_FIRST_VERSION
    assert all(field.null for field in FrozenTerms._meta.concrete_fields if field.attname in FROZEN)


def test_money_names_the_column_of_its_currency() -> None:
    assert {column.currency_column for column in RECORD_COLUMNS} - {""} <= COLUMN_BY_NAME.keys()
    assert not [column.name for column in RECORD_COLUMNS if column.unit and column.currency_column]


def test_the_daily_sums_have_a_column_for_each_figure_and_for_its_count() -> None:
    of_a_day = {field.attname for field in DailyUsage._meta.concrete_fields} - {"id", "account_id", *GROUP, *Kind}
    assert set(SUMS) == of_a_day
    assert {column.counted_by for column in ROLLED_UP} <= of_a_day
    assert of_a_day == {field.name for field in fields(Totals)} - {"errors", "unserved"}


def test_a_later_sum_has_a_later_count_by_which_the_days_before_are_known() -> None:
    later = {name for name in SUMS if name not in SINCE_THE_FIRST_DAY}
    assert {KNOWN_BY.get(name, name) for name in later} <= later


def test_every_figure_that_is_verified_is_read() -> None:
    verified = {column.name for column in RECORD_COLUMNS if column.verified_as}
    assert verified == {*COSTS, *FOOTPRINT}
    assert verified <= set(Record._fields)
    assert len(FOOTPRINT) == len(Footprint._fields)


def test_columns_of_a_statement_keep_their_place() -> None:
    assert "".join(statement.csv_blocks([])) == STATEMENT_HEADER  # new columns are appended
