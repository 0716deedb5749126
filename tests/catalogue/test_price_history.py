"""The history of prices has each change with its author, its time, and the old and new price."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from catalogue import changes, price_history
from catalogue.models import PRICES, PriceChange, Region
from tests.seeding import Entry, Seed

ROUTE = "acme/meta/llama/global"
PROMPT, COMPLETION, CACHE = "prompt_per_1m_tokens", "completion_per_1m_tokens", "cache_read_per_1m_tokens"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
Change = tuple[str, Decimal | None, str, Decimal | None, str]


def history(route: str = ROUTE) -> list[Change]:
    """Returns the route's changes, newest first."""
    return [(c.field, c.old, c.currency_old, c.new, c.currency_new) for c in price_history.of_route(route, 100)]


def since(seen: int) -> set[Change]:
    """Returns the changes after the first `seen`."""
    return set(history()[: PriceChange.objects.count() - seen])


def test_history_begins_with_the_prices_that_a_route_comes_with(seed: Seed, llama: Entry) -> None:
    seed(llama)
    assert set(history()) == {
        (PROMPT, None, "", Decimal("0.6"), "EUR"),
        (COMPLETION, None, "", Decimal("1.2"), "EUR"),
    }
    first = PriceChange.objects.earliest("id")
    assert (first.via, first.changed_by, first.changed_by_name) == ("seed", None, "")
    assert first.region == Region.objects.get()


def test_seeding_records_what_it_changes_and_when(seed: Seed, llama: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(llama)
    monkeypatch.setattr(timezone, "now", lambda: NOON)
    llama["models"][0]["pricing"] = {"currency": "EUR", PROMPT: 0.7, COMPLETION: 1.2, CACHE: 0.05}
    seed(llama)
    assert since(2) == {
        (PROMPT, Decimal("0.6"), "EUR", Decimal("0.7"), "EUR"),
        (CACHE, None, "", Decimal("0.05"), "EUR"),
    }
    assert PriceChange.objects.latest("id").changed_at == NOON


def test_seeding_the_same_again_or_anything_else_records_nothing(seed: Seed, llama: Entry) -> None:
    seed(llama)
    seed(llama)
    llama["models"][0]["regions"] = [{"locode": "global", "daily_token_quota": 5}]
    seed(llama)
    assert len(history()) == 2


def test_a_dry_run_and_a_held_price_record_nothing(seed: Seed, llama: Entry) -> None:
    seed(llama)
    llama["models"][0]["pricing"][PROMPT] = 0.7
    seed(llama, dry_run=True)
    llama["models"][0]["pricing"][PROMPT] = 70
    seed(llama)
    assert len(history()) == 2


def test_a_new_currency_is_a_new_price(seed: Seed, llama: Entry) -> None:
    seed(llama)
    llama["models"][0]["pricing"]["currency"] = "USD"
    seed(llama)
    assert since(2) == {
        (PROMPT, Decimal("0.6"), "EUR", Decimal("0.6"), "USD"),
        (COMPLETION, Decimal("1.2"), "EUR", Decimal("1.2"), "USD"),
    }


def test_prices_of_tiers_are_named_after_their_threshold(seed: Seed, llama: Entry) -> None:
    tiers = [{"above_prompt_tokens": 1000, PROMPT: 1.2, COMPLETION: 1.8}]
    llama["models"][0]["pricing"]["tiers"] = tiers
    seed(llama)
    assert since(2) == {
        (f"tiers[1000].{PROMPT}", None, "", Decimal("1.2"), "EUR"),
        (f"tiers[1000].{COMPLETION}", None, "", Decimal("1.8"), "EUR"),
    }
    tiers[0] |= {"above_prompt_tokens": 2**31 - 1, "cache_write_1h_per_1m_tokens": 2}
    seed(llama, accept_price_jumps=True)
    assert since(4) == {
        (f"tiers[1000].{PROMPT}", Decimal("1.2"), "EUR", None, ""),
        (f"tiers[1000].{COMPLETION}", Decimal("1.8"), "EUR", None, ""),
        (f"tiers[2147483647].{PROMPT}", None, "", Decimal("1.2"), "EUR"),
        (f"tiers[2147483647].{COMPLETION}", None, "", Decimal("1.8"), "EUR"),
        ("tiers[2147483647].cache_write_1h_per_1m_tokens", None, "", Decimal(2), "EUR"),
    }
    seed(llama)
    assert len(history()) == 9


def test_a_price_that_goes_is_recorded(seed: Seed, llama: Entry) -> None:
    seed(llama)
    llama["models"][0]["pricing"] = None
    seed(llama)
    assert since(2) == {
        (PROMPT, Decimal("0.6"), "EUR", None, ""),
        (COMPLETION, Decimal("1.2"), "EUR", None, ""),
    }


def test_history_outlives_its_route_and_is_found_again(seed: Seed, llama: Entry) -> None:
    seed(llama)
    seed({**llama, "models": []}, prune=True)
    assert not Region.objects.exists()
    assert [(change.region, change.route) for change in PriceChange.objects.all()] == [(None, ROUTE)] * 2
    llama["models"][0]["pricing"][PROMPT] = 60  # a jump by way of a removal
    seed(llama)
    assert len(history()) == 4


def test_a_seeding_that_is_undone_leaves_no_history(seed: Seed, llama: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtake(*_: object) -> bool:
        return False

    seed(llama)
    llama["models"][0]["pricing"][PROMPT] = 0.7
    with monkeypatch.context() as patch:
        patch.setattr(changes, "bump_from", overtake)
        patch.setattr("time.sleep", lambda _: None)
        with pytest.raises(Exception, match="locked"):
            seed(llama)
    assert len(history()) == 2


def test_a_large_seeding_writes_its_history_in_bulk(
    seed: Seed, llama: Entry, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    model = llama["models"][0]
    llama["models"] = [{**model, "id": f"meta/model-{number}"} for number in range(200)]
    with django_assert_max_num_queries(60):
        seed(llama)
    assert PriceChange.objects.count() == 400


def test_an_edit_is_recorded_with_the_editor(seed: Seed, llama: Entry) -> None:
    seed(llama)
    region, before = Region.objects.get(), changes.version()
    user = User.objects.create_user("ada@example.com")
    with price_history.edited_by(user, [region.pk]):
        region.prompt_per_1m_tokens = Decimal("0.65")
        region.save()
    change = PriceChange.objects.latest("id")
    assert since(2) == {(PROMPT, Decimal("0.6"), "EUR", Decimal("0.65"), "EUR")}
    assert (change.route, change.via, change.changed_by, change.changed_by_name) == (
        ROUTE,
        "admin",
        user,
        "ada@example.com",
    )
    assert changes.version() > before
    user.delete()
    change.refresh_from_db()
    assert (change.changed_by, change.changed_by_name) == (None, "ada@example.com")


def test_every_price_of_a_route_has_a_history() -> None:
    assert len(PRICES) == 7
    assert "currency" not in PRICES
