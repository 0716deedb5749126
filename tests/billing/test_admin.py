import logging
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.core.exceptions import ValidationError
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from accounts import keys
from accounts.models import Account, ApiKey, User
from billing.ledger import balance_lines
from billing.models import LedgerEntry, Wallet
from billing.usage.verify import Verification, verify
from catalogue.models import ExchangeRate
from inference.dialects import read_usage
from tests.billing.records import MEMBER, key_of, open_for, serve
from tests.page_text import plain

pytestmark = pytest.mark.django_db

ENTRIES, RECORDS, ACCOUNTS, KEYS, USERS = (
    f"/admin/{path}/"
    for path in ("billing/ledgerentry", "billing/generation", "accounts/account", "accounts/apikey", "accounts/user")
)


LOG = "/admin/admin/logentry/"


@pytest.fixture
def account() -> Account:
    return open_for(MEMBER)


def test_it_works_under_the_page_policy(staff: Client) -> None:
    response = staff.get("/admin/")
    assert response.status_code == 200
    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert "Inference Gateway" in response.text


def test_members_do_not_get_in(client: Client, account: Account) -> None:
    client.force_login(User.objects.get(email=MEMBER))
    assert client.get(ENTRIES)["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("listing", [ENTRIES, RECORDS, ACCOUNTS, KEYS, USERS, LOG])
def test_every_list_opens(staff: Client, account: Account, listing: str) -> None:
    serve(account)
    assert staff.get(listing).status_code == 200


@pytest.mark.parametrize("listing", [ENTRIES, RECORDS])
def test_history_can_be_read_and_not_touched(staff: Client, account: Account, listing: str) -> None:
    generation = serve(account)
    row = LedgerEntry.objects.get(generation=generation).pk if listing == ENTRIES else generation.pk
    assert staff.get(f"{listing}{row}/change/").status_code == 200
    assert staff.post(f"{listing}{row}/change/", {"amount": "1000"}).status_code == 403
    assert staff.post(f"{listing}{row}/delete/", {"post": "yes"}).status_code == 403
    assert staff.post(f"{listing}add/", {"amount": "1000"}).status_code == 403
    assert_unchanged(account)


def test_the_delete_action_does_not_reach_the_ledger(staff: Client, account: Account) -> None:
    entry = LedgerEntry.objects.get()
    staff.post(ENTRIES, {"action": "delete_selected", "_selected_action": [entry.pk], "post": "yes"})
    assert LedgerEntry.objects.count() == 1
    assert_unchanged(account)


def test_a_page_of_the_ledger_costs_a_fixed_number_of_queries(
    staff: Client, account: Account, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        serve(account)
    with django_assert_num_queries(4) as captured:  # session, user, bounded count, rows
        staff.get(ENTRIES)
    count = next(query["sql"] for query in captured.captured_queries if "COUNT" in query["sql"])
    assert "LIMIT 1000" in count


def test_entries_are_found_by_account_and_by_generation(staff: Client, account: Account) -> None:
    generation = serve(account)
    serve(open_for(name="Other"))
    assert listed(staff, ENTRIES, account.name) == 2
    assert listed(staff, ENTRIES, str(account.pk)) == 2
    assert listed(staff, ENTRIES, generation.public_id) == 1
    assert listed(staff, ENTRIES, "nobody") == 0


def test_records_are_found_by_id_account_and_key(staff: Client, account: Account) -> None:
    generation = serve(account)
    serve(open_for(name="Other"))
    for term in (generation.public_id, str(generation.pk), account.name, str(key_of(account).pk)):
        assert listed(staff, RECORDS, term) == 1
    assert listed(staff, RECORDS, "gen-0") == 0


def test_a_record_is_read_by_subject_in_exact_figures_with_their_units(staff: Client, account: Account) -> None:
    shown = plain(staff.get(f"{RECORDS}{serve(account).pk}/change/").text)
    for title in ("Route", "Tokens", "Money", "Footprint", "Timing", "Provider's usage"):
        assert title in shown
    assert "0.00072 EUR" in shown
    assert "0000000000" not in shown


def test_balances_are_shown_in_cents_with_their_currency_and_exactly_as_title(staff: Client, account: Account) -> None:
    serve(account)
    for page in (f"{ACCOUNTS}{account.pk}/change/", ACCOUNTS, ENTRIES):
        assert 'title="99.99928">99.99</data>\N{NO-BREAK SPACE}EUR' in staff.get(page).text.replace(
            "&nbsp;", "\N{NO-BREAK SPACE}"
        )


def test_accounts_are_found_by_name_member_and_id(staff: Client, account: Account) -> None:
    open_for("other@example.com", name="Other")
    for term in ("acm", MEMBER, str(account.pk)):
        assert listed(staff, ACCOUNTS, term) == 1
    assert listed(staff, ACCOUNTS, "example.com") == 2
    assert listed(staff, ACCOUNTS, "nobody") == 0


def test_the_list_of_accounts_counts_members_in_a_fixed_number_of_queries(
    staff: Client, account: Account, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    open_for(MEMBER, "second@example.com", "third@example.com", name="Other")
    open_for(name="Nobody's")
    with django_assert_num_queries(5):  # session, user, currencies to filter by, bounded count, rows
        rows = staff.get(ACCOUNTS).context["cl"].result_list
    assert [(row.name, row.members_in) for row in rows] == [("Acme", 1), ("Nobody's", None), ("Other", 3)]


@pytest.mark.parametrize("listing", [ENTRIES, RECORDS, ACCOUNTS, KEYS, LOG])
def test_no_list_counts_what_its_filters_would_find(staff: Client, account: Account, listing: str) -> None:
    assert "Show counts" not in staff.get(listing).text
    assert staff.get(listing, {"_facets": "True"}).context["cl"].add_facets is False


@pytest.mark.parametrize("listing", [ENTRIES, RECORDS, ACCOUNTS, KEYS, LOG])
def test_no_list_that_ends_offers_all_of_its_rows(staff: Client, account: Account, listing: str) -> None:
    for number in range(101):  # more than a page
        keys.issue(account, name=f"key {number}")
    assert "Show all" not in staff.get(listing).text
    text = staff.get(listing, {"q": account.name}).text
    assert "Show all" not in text
    assert '(<a href="?">Clear</a>)' in text


def test_an_account_is_not_removed(staff: Client, account: Account) -> None:
    assert staff.post(f"{ACCOUNTS}{account.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Account.objects.filter(pk=account.pk).exists()


def test_an_account_made_here_has_a_wallet(staff: Client) -> None:
    assert save(staff, f"{ACCOUNTS}add/", name="New", currency="USD") == 302
    assert Wallet.objects.get(account__name="New").balance == 0


def test_a_currency_without_an_exchange_rate_is_taken_and_said(staff: Client) -> None:
    members = {"membership_set-TOTAL_FORMS": "0", "membership_set-INITIAL_FORMS": "0"}
    for button in ("_save", "_continue"):
        fields = {"name": f"By {button}", "currency": "JPY", button: "Save"}
        saved = staff.post(f"{ACCOUNTS}add/", fields | members, follow=True)
        assert saved.text.count("There is no exchange rate for JPY") == 1
    address = f"{ACCOUNTS}{Account.objects.get(name='By _save').pk}/change/"
    assert "There is no exchange rate for JPY" in staff.get(address).text
    ExchangeRate.objects.create(currency="JPY", units_per_eur=Decimal(165))
    assert "exchange rate" not in staff.get(address).text


def test_euros_need_no_exchange_rate(staff: Client, account: Account) -> None:
    assert "exchange rate" not in staff.get(f"{ACCOUNTS}{account.pk}/change/").text


def test_the_currency_can_be_corrected_before_the_first_entry(staff: Client) -> None:
    account = open_for(name="Fresh", credit=None)
    assert save(staff, f"{ACCOUNTS}{account.pk}/change/", name="Fresh", currency="USD") == 302
    assert Account.objects.get(pk=account.pk).currency == "USD"


def test_the_currency_is_fixed_by_the_first_entry(staff: Client, account: Account) -> None:
    save(staff, f"{ACCOUNTS}{account.pk}/change/", name="Renamed", currency="USD")
    account.refresh_from_db()
    assert (account.name, account.currency) == ("Renamed", "EUR")


def test_code_cannot_change_the_currency_either(account: Account) -> None:
    account.currency = "USD"
    with pytest.raises(ValidationError, match="fixed once there is a ledger entry"):
        account.save()


def test_a_key_shows_no_secret(staff: Client, account: Account) -> None:
    key, token = keys.issue(account, name="laptop")
    text = staff.get(f"{KEYS}{key.pk}/change/").text + staff.get(KEYS).text
    assert key.masked in text
    assert token not in text
    assert bytes(key.fingerprint or b"").hex() not in text
    assert bytes(key.verifier or b"").hex() not in text


def test_a_threshold_of_the_balance_is_not_below_zero(staff: Client, account: Account) -> None:
    address = f"{ACCOUNTS}{account.pk}/change/"
    members = {"membership_set-TOTAL_FORMS": "0", "membership_set-INITIAL_FORMS": "0"}
    fields = {"name": account.name, "currency": "EUR", **members}
    response = staff.post(address, fields | {"low_balance": "-5"})
    assert "Must not be below zero." in plain(response.text)
    account.refresh_from_db()
    assert account.low_balance is None
    assert staff.post(address, fields | {"low_balance": "0"}).status_code == 302


def test_staff_see_and_set_the_highest_amount_of_the_balance_at_which_owners_are_told(
    staff: Client, account: Account
) -> None:
    balance_lines.set_amounts(account.pk, [Decimal(50), Decimal(5)])
    address = f"/admin/accounts/account/{account.pk}/change/"
    assert 'value="50.00"' in staff.get(address).text
    members = {"membership_set-TOTAL_FORMS": "0", "membership_set-INITIAL_FORMS": "0"}
    fields = {"name": account.name, "currency": account.currency, **members}
    assert staff.post(address, fields | {"low_balance": "20"}).status_code == 302
    assert balance_lines.amounts_of(account.pk) == [20, 5]


def test_a_person_is_made_by_address_in_lower_case(staff: Client) -> None:
    fields = {"email": "New.Person@Example.COM", "usable_password": "false"}
    assert staff.post(f"{USERS}add/", fields).status_code == 302
    assert User.objects.filter(email="new.person@example.com").exists()


def test_a_person_can_be_edited(staff: Client, account: Account) -> None:
    person = User.objects.get(email=MEMBER)
    assert staff.get(f"{USERS}{person.pk}/change/").status_code == 200
    assert staff.post(f"{USERS}{person.pk}/change/", {"email": "RENAMED@example.com"}).status_code == 302
    person.refresh_from_db()
    assert person.email == "renamed@example.com"


def test_the_history_of_the_admin_is_read_by_person_and_row(staff: Client, account: Account) -> None:
    key = key_of(account)
    staff.post(KEYS, deletion_of(key))
    other = User.objects.create_superuser("other-staff@example.com")
    staff.force_login(other)
    save(staff, f"{ACCOUNTS}{account.pk}/change/", name="Renamed")
    first, second = LogEntry.objects.order_by("-pk")
    text = staff.get(LOG).text
    assert "API key: test (sk-gw-…" in text
    assert "Changed Name to Renamed." in text
    assert text.index("other-staff@example.com</td>") < text.index("Deleted the key.")
    assert rows(staff, LOG, user=str(other.pk)) == [first.pk]
    assert rows(staff, LOG, q=str(key.pk)) == [second.pk]
    assert rows(staff, LOG, q=key.pk.hex) == [second.pk]
    assert rows(staff, LOG, q="Other-Staff@example.com") == [first.pk]
    assert rows(staff, LOG, q="nobody") == []
    assert staff.get(LOG, {"user": "nobody"})["Location"] == f"{LOG}?e=1"


def test_the_history_is_not_touched(staff: Client, account: Account) -> None:
    save(staff, f"{ACCOUNTS}{account.pk}/change/", name="Renamed")
    line = LogEntry.objects.get()
    assert staff.get(f"{LOG}{line.pk}/change/").status_code == 200
    assert staff.post(f"{LOG}{line.pk}/change/", {"change_message": "x"}).status_code == 403
    assert staff.post(f"{LOG}{line.pk}/delete/", {"post": "yes"}).status_code == 403
    assert staff.post(f"{LOG}add/", {"change_message": "x"}).status_code == 403
    assert LogEntry.objects.get().change_message == line.change_message


def test_staff_who_acted_cannot_be_removed_with_their_history(staff: Client, account: Account) -> None:
    save(staff, f"{ACCOUNTS}{account.pk}/change/", name="Renamed")
    actor = User.objects.get(email="staff@example.com")
    staff.force_login(User.objects.create_superuser("other-staff@example.com"))
    assert staff.post(f"{USERS}{actor.pk}/delete/", {"post": "yes"}).status_code == 403
    assert LogEntry.objects.count() == 1


def test_every_action_is_a_line_in_the_servers_log_without_names(
    staff: Client, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    person = User.objects.create_user("leaving@example.com")
    key = key_of(account)
    with caplog.at_level(logging.INFO):
        staff.post(KEYS, deletion_of(key))
        staff.post(f"{USERS}{person.pk}/delete/", {"post": "yes"})
    actor = User.objects.get(email="staff@example.com").pk
    assert caplog.messages == [
        f"staff {actor}: change of accounts.apikey {key.pk}",
        f"staff {actor}: deletion of accounts.user {person.pk}",
    ]


def test_many_rows_are_not_removed_at_once(staff: Client, account: Account) -> None:
    staff.post(USERS, {"action": "delete_selected", "_selected_action": [User.objects.get(email=MEMBER).pk]})
    assert User.objects.filter(email=MEMBER).exists()


def deletion_of(key: ApiKey) -> dict[str, object]:
    return {"action": "delete_keys", "_selected_action": [str(key.pk)], "confirmed": "Delete it"}


def rows(staff: Client, listing: str, **query: str) -> list[object]:
    return [row.pk for row in staff.get(listing, query).context["cl"].result_list]


def listed(staff: Client, listing: str, term: str) -> int:
    return len(staff.get(listing, {"q": term}).context["cl"].result_list)


def save(staff: Client, path: str, **fields: str) -> int:
    members = {"membership_set-TOTAL_FORMS": "0", "membership_set-INITIAL_FORMS": "0"}
    return staff.post(path, {**fields, **members}).status_code


def assert_unchanged(account: Account) -> None:
    outcome = [line for line in verify(account.pk, read_usage) if not isinstance(line, Verification)]
    assert outcome == []
    assert Wallet.objects.get(pk=account.pk).balance <= Decimal(100)
