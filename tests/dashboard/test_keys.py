"""Members manage keys on the pages, a token is shown once, and other people find none of them."""

import re
import threading
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection, connections
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from accounts import keys
from accounts.keys import caller_of
from accounts.models import Account, ApiKey, User
from billing.policies import Holder, set_policy, set_tags
from dashboard.keys import EXPIRY_LABELS, PAGE_ROWS
from gateway.errors import ApiKeyNotRegistered
from tests.billing.records import MEMBER, fail, open_for, serve
from tests.dashboard.people import client_of, joined
from tests.page_text import plain

pytestmark = pytest.mark.django_db
TOKEN = r"sk-gw-[A-Za-z0-9_-]{43}"


@pytest.fixture
def key(account: Account) -> ApiKey:
    return keys.issue(account, name="laptop", created_by=User.objects.get(email=MEMBER))[0]


def deletion(key: ApiKey) -> str:
    return f"/keys/{key.pk}/delete"


def create(client: Client, account: Account, name: str = "ci", expiry: str = "90d", *, status: int = 200) -> str:
    response = client.post("/keys", {"account": str(account.pk), "name": name, "expiry": expiry})
    assert response.status_code == status
    return response.text


def token_in(page: str) -> str:
    return re.findall(rf">({TOKEN})<", page)[0]


def test_strangers_are_sent_to_the_login(client: Client, key: ApiKey) -> None:
    for path in ("/keys", deletion(key)):
        for send in (client.get, client.post):
            assert send(path)["Location"] == f"/login?next={path}"
    assert ApiKey.objects.get().deleted_at is None


@pytest.mark.parametrize("staff", [False, True])
@pytest.mark.parametrize("has_own", [False, True])
def test_people_of_other_accounts_find_nothing_by_any_verb(
    client: Client, key: ApiKey, staff: bool, has_own: bool
) -> None:
    client.force_login(User.objects.create_user("somebody@example.com", is_staff=staff))
    if has_own:
        open_for("somebody@example.com", name="Theirs")
        assert client.get("/keys", {"account": str(key.account_id)}).status_code == 404
        assert client.head("/keys", {"account": str(key.account_id)}).status_code == 404
    create(client, key.account, status=404)
    for send in (client.get, client.head, client.post):
        assert send(deletion(key)).status_code == 404
    assert ApiKey.objects.get().deleted_at is None


@pytest.mark.parametrize("verb", ["put", "patch", "delete"])
def test_other_verbs_do_nothing(member: Client, key: ApiKey, verb: str) -> None:
    for path in ("/keys", deletion(key)):
        assert getattr(member, verb)(path).status_code == 405
    assert ApiKey.objects.get().deleted_at is None


def test_forms_need_their_token(account: Account, key: ApiKey) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.get(email=MEMBER))
    create(client, account, status=403)
    assert client.post(deletion(key)).status_code == 403
    assert ApiKey.objects.get().deleted_at is None


@pytest.mark.parametrize("query", ["account=nonsense", "account=0199f000-0000-7000-8000-000000000000"])
def test_what_the_address_asks_for_must_be_there(member: Client, query: str) -> None:
    assert member.get(f"/keys?{query}").status_code == 404


def test_the_list_shows_everything_but_the_token(member: Client, account: Account) -> None:
    key, token = keys.issue(account, name="laptop", lifetime="30d", rpm=60, tpm=100_000)
    ApiKey.objects.update(
        created_at=timezone.now().replace(year=2031, month=1, day=2, hour=3, minute=4),
        expires_at=timezone.now().replace(year=2032, month=5, day=6, hour=7, minute=8),
        last_used_at=timezone.now().replace(year=2031, month=2, day=3, hour=4, minute=5),
    )
    page = member.get("/keys").text
    made = f"{key.masked} , created 2 Jan 2031 03:04"
    row = "active 0 0.00 none 6 May 2032 07:08 3 Feb 2031 04:05"
    assert f"laptop 60 requests, 100,000 tokens per minute {made} {row}" in plain(page)
    assert f'<a href="/usage?account={account.pk}&amp;key={key.pk}"><bdi>laptop</bdi></a>' in page
    assert token not in page


def test_a_key_without_use_end_or_limits_says_so(member: Client, account: Account) -> None:
    key, _ = keys.issue(account, name="laptop", lifetime="never")
    page = plain(member.get("/keys").text)
    assert f"laptop {key.masked} , created" in page
    assert "active 0 0.00 none Never Never" in page
    assert "per minute" not in page


def test_lifted_and_single_limits_are_shown(member: Client, account: Account) -> None:
    keys.issue(account, name="free", rpm=0, tpm=0)
    keys.issue(account, name="half", tpm=5000)
    page = plain(member.get("/keys").text)
    assert "free any requests, any tokens per minute" in page
    assert "half 5,000 tokens per minute" in page


def test_the_gateways_limits_are_shown_for_a_key_without_its_own(
    member: Client, account: Account, settings: Settings
) -> None:
    settings.GATEWAY_KEY_RPM, settings.GATEWAY_KEY_TPM = 600, 0
    for name, rpm, tpm in (("usual", None, None), ("small", 60, 5000), ("free", 0, None)):
        keys.issue(account, name=name, rpm=rpm, tpm=tpm)
    page = plain(member.get("/keys").text)
    for expected in (
        "usual 600 requests per minute",
        "small 60 requests, 5,000 tokens per minute",
        "free any requests per minute",
    ):
        assert expected in page


def test_an_expired_key_is_marked_by_the_clock_and_a_deleted_one_is_not_listed(
    member: Client, account: Account
) -> None:
    old, _ = keys.issue(account, name="old")
    gone, _ = keys.issue(account, name="thrown-away")
    keys.delete(gone)
    assert "expired" not in plain(member.get("/keys").text)
    ApiKey.objects.filter(pk=old.pk).update(expires_at=timezone.now())
    page = plain(member.get("/keys").text)
    assert re.search(rf"old {old.masked} , created [\w :]+ expired", page)
    assert "thrown-away" not in page


def test_the_page_of_an_account_without_keys_explains_them(member: Client) -> None:
    assert "No keys yet." in plain(member.get("/keys").text)


def test_many_keys_are_paged_newest_first(
    member: Client, account: Account, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(PAGE_ROWS * 2 + 1):
        keys.issue(account, name=f"key-{number:03}")
    path, seen = "/keys", []
    while path:
        # The session, the person, their accounts, what the keys used (4), all keys, a page of them, their budgets.
        with django_assert_max_num_queries(10):
            page = member.get(path).text
        seen.append(re.findall(r"key-\d{3}(?=</bdi></a>)", page))
        following = unescape("".join(re.findall(r'href="([^"]+)" rel="next"', page)))
        path = f"/keys{following}" if following else ""
    assert [len(names) for names in seen] == [50, 50, 1]
    assert [name for names in seen for name in names] == [f"key-{number:03}" for number in reversed(range(101))]


def names_of(page: str) -> list[str]:
    return re.findall(r"<bdi>([\w-]+)</bdi></a>", page)


@pytest.fixture
def used_keys(account: Account) -> Account:
    """Makes three keys: one that was used most often, one that cost most, and one that was not used."""
    often, dear, _ = (keys.issue(account, name=name, created_by=None)[0] for name in ("often", "dear", "Unused"))
    for _ in range(3):
        serve(account, key=often, cost=Decimal("0.1"))
    serve(account, key=dear, cost=Decimal(2))
    ApiKey.objects.filter(pk=often.pk).update(last_used_at=timezone.now())
    set_policy(Holder.of_key(dear), {"budget": [{"amount": "2", "period": "month"}]})
    set_tags(often, ["team=search"])
    keys.delete(ApiKey.objects.get(name="test"))  # `serve` makes it
    return account


def test_the_list_shows_what_each_key_used_and_what_is_spent_of_its_budget(member: Client, used_keys: Account) -> None:
    page = plain(member.get("/keys").text)
    assert "active 3 0.3000 none " in page
    assert "active 1 2.0000 100 % of 2.00 per month spent" in page
    assert "active 0 0.00 none " in page


def test_requests_of_a_key_that_failed_are_counted(member: Client, account: Account) -> None:
    serve(account, key=keys.issue(account, name="served")[0], cost=Decimal("0.1"))
    for _ in range(2):
        fail(account)  # by the key "test"
    assert "active 2 0.00 none " in plain(member.get("/keys").text)
    assert names_of(member.get("/keys", {"sort": "requests"}).text) == ["test", "served"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("", ["Unused", "dear", "often"]),
        ("name", ["dear", "often", "Unused"]),
        ("requests", ["often", "dear", "Unused"]),
        ("cost", ["dear", "often", "Unused"]),
        ("used", ["often", "Unused", "dear"]),
    ],
)
def test_keys_are_sorted(member: Client, used_keys: Account, sort: str, expected: list[str]) -> None:
    assert names_of(member.get("/keys", {"sort": sort}).text) == expected


def test_keys_are_searched_by_name_last_four_tag_and_maker(member: Client, used_keys: Account, key: ApiKey) -> None:
    dear = ApiKey.objects.get(name="dear")
    for words, expected in (
        ("DEA", ["dear"]),
        (dear.last_four, ["dear"]),
        ("team=search", ["often"]),
        (MEMBER, ["laptop"]),
        ("search oft", ["often"]),
        ("", ["laptop", "Unused", "dear", "often"]),
    ):
        assert names_of(member.get("/keys", {"q": words}).text) == expected, words
    assert "No key matches." in plain(member.get("/keys", {"q": "nothing\x00"}).text)


@pytest.mark.parametrize(("query", "fault"), [({"sort": "colour"}, "Sort by"), ({"q": "x" * 101}, "Search")])
def test_a_search_at_fault_names_its_field(
    member: Client, used_keys: Account, query: dict[str, str], fault: str
) -> None:
    response = member.get("/keys", query)
    assert response.status_code == 422
    assert fault in plain(response.text.partition('role="alert"')[2])


@pytest.mark.parametrize("expiry", list(keys.LIFETIMES))
def test_a_form_creates_a_key_that_lives_as_long_as_was_chosen(member: Client, account: Account, expiry: str) -> None:
    token = token_in(create(member, account, expiry=expiry))
    key = ApiKey.objects.get()
    assert caller_of(token).key_id == key.pk
    lifetime = keys.LIFETIMES[expiry]
    if lifetime is None:
        assert key.expires_at is None
    else:
        assert key.expires_at is not None
        assert abs(key.expires_at - timezone.now() - lifetime) < timedelta(seconds=30)


def test_the_form_offers_every_lifetime_and_starts_at_90_days(member: Client) -> None:
    page = member.get("/keys").text.partition('aria-labelledby="list"')[0]
    offered = re.findall(r'<option value="(\w+)"( selected)?>([^<]+)', page)
    assert [(value, label) for value, _, label in offered] == list(EXPIRY_LABELS.items())
    assert [label for _, selected, label in offered if selected] == ["90 days"]
    assert set(EXPIRY_LABELS) == set(keys.LIFETIMES)


def test_the_new_key_is_shown_whole_with_the_line_that_uses_it(
    member: Client, account: Account, settings: Settings
) -> None:
    settings.PUBLIC_URL = "https://gateway.example"
    response = member.post("/keys", {"account": str(account.pk), "name": "ci", "expiry": "90d"})
    token, page = token_in(response.text), plain(response.text)
    assert "You will not be able to see it again." in page
    assert f'curl https://gateway.example/v1/models \\ -H "Authorization: Bearer {token}"' in page
    assert "curl https://gateway.example/v1/chat/completions" in page
    assert response.text.count(token) == 3
    assert 'data-copy="token"' in response.text
    assert "no-store" in response["Cache-Control"]


def test_a_token_stays_nowhere_but_on_its_page(
    member: Client, account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        token = token_in(create(member, account))
    secret = token.removeprefix("sk-gw-")[:-4]
    assert secret not in caplog.text
    assert all(secret not in str(session.get_decoded()) for session in Session.objects.all())
    assert all(secret not in cookie.value for cookie in member.cookies.values())
    assert all(secret not in member.get(path).text for path in ("/keys", "/"))
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT * FROM "{table}"')
            assert secret not in str(cursor.fetchall())


def test_a_reload_of_the_new_key_s_page_creates_no_second_one(member: Client, account: Account) -> None:
    first = token_in(create(member, account))
    page = create(member, account, status=422)
    assert re.search(TOKEN, page) is None
    assert "The account already has a key named 'ci'. If you just created it" in plain(page)
    assert caller_of(first).key_id == ApiKey.objects.get().pk


@pytest.mark.parametrize(
    ("name", "expiry", "expected"),
    [
        ("", "90d", keys.NAME_RULE),
        ("  ", "90d", keys.NAME_RULE),
        ("x" * 201, "90d", keys.NAME_RULE),
        ("two\nlines", "90d", keys.NAME_RULE),
        ("<b>\x00", "90d", "Null characters are not allowed."),
        ("ci", "2y", "Select a valid choice."),
        ("ci", "", "This field is required."),
        (" laptop ", "90d", "The account already has a key named 'laptop'."),
    ],
)
def test_a_form_at_fault_is_shown_again_with_the_reason(
    member: Client, key: ApiKey, name: str, expiry: str, expected: str
) -> None:
    page = create(member, key.account, name, expiry, status=422)
    assert expected in plain(page)
    assert 'aria-invalid="true"' in page
    assert "<b>" not in page
    assert ApiKey.objects.count() == 1


def test_the_name_of_a_deleted_key_can_be_used_again(member: Client, key: ApiKey) -> None:
    keys.delete(key)
    create(member, key.account, "laptop")
    assert ApiKey.objects.filter(name="laptop").count() == 2


@pytest.mark.django_db(transaction=True)
def test_of_two_keys_of_one_name_at_once_one_is_created_and_the_other_explained(account: Account) -> None:
    user, barrier, answers = User.objects.get(email=MEMBER), threading.Barrier(2), []
    clients = [Client(), Client()]
    for client in clients:
        client.force_login(user)

    def send(client: Client) -> None:
        barrier.wait()
        answers.append(client.post("/keys", {"account": str(account.pk), "name": "ci", "expiry": "90d"}))
        connections.close_all()

    threads = [threading.Thread(target=send, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answer.status_code for answer in answers) == [200, 422]
    assert ApiKey.objects.count() == 1


def test_deleting_asks_first_and_acts_at_once(member: Client, account: Account) -> None:
    token = token_in(create(member, account))
    key = ApiKey.objects.get()
    asked = plain(member.get(deletion(key)).text)
    assert "Delete ci?" in asked
    assert "Requests with it fail immediately with 401 api_key_not_registered" in asked
    assert caller_of(token).key_id == key.pk
    response = member.post(deletion(key), follow=True)
    assert response.redirect_chain == [(f"/keys?account={account.pk}", 302)]
    assert "ci has been deleted." in plain(response.text)
    with pytest.raises(ApiKeyNotRegistered):
        caller_of(token)


def test_deleting_a_key_that_is_gone_shows_a_message_on_the_list(member: Client, key: ApiKey) -> None:
    keys.delete(key)
    for send in (member.get, member.post):
        response = send(deletion(key), follow=True)
        assert response.redirect_chain == [(f"/keys?account={key.account_id}", 302)]
        assert "laptop has already been deleted." in plain(response.text)


def test_a_deleted_key_of_somebody_else_is_not_there(client: Client, key: ApiKey) -> None:
    keys.delete(key)
    open_for("somebody@example.com", name="Theirs")
    client.force_login(User.objects.get(email="somebody@example.com"))
    for send in (client.get, client.head, client.post):
        assert send(deletion(key)).status_code == 404


def test_ones_other_account_has_its_own_keys(member: Client, key: ApiKey) -> None:
    beta = open_for(MEMBER, name="Beta")
    page = member.get(f"/keys?account={beta.pk}").text
    assert "laptop" not in page
    create(member, beta, "server")
    assert {key.name: key.account.name for key in ApiKey.objects.all()} == {"laptop": "Acme", "server": "Beta"}


def test_pages_keep_the_strict_policy_and_are_not_cached(member: Client, account: Account, key: ApiKey) -> None:
    new = member.post("/keys", {"account": str(account.pk), "name": "ci", "expiry": "90d"})
    for response in (member.get("/keys"), new, member.get(deletion(key))):
        assert "unsafe-inline" not in response["Content-Security-Policy"]
        assert "no-store" in response["Cache-Control"]
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", response.text)


def test_members_change_their_own_keys_and_owners_all(member: Client, account: Account, key: ApiKey) -> None:
    owner = client_of("owner@acme.example")
    joined(account, "owner@acme.example", "owner")
    theirs, _ = keys.issue(account, name="server", created_by=User.objects.get(email="owner@acme.example"))
    listed = member.get("/keys").text
    assert f"by {MEMBER}" in plain(listed)
    assert "by owner@acme.example" in plain(listed)
    assert f"/keys/{key.pk}/delete" in listed
    assert f"/keys/{theirs.pk}/delete" not in listed
    for path in (f"/keys/{theirs.pk}", deletion(theirs)):
        assert [send(path).status_code for send in (member.get, member.post)] == [403, 403]
    assert ApiKey.objects.get(pk=theirs.pk).deleted_at is None
    assert member.post(f"/keys/{key.pk}", {"action": "limits", "rpm": "1000"}).status_code == 403
    assert "Limits" not in plain(member.get(f"/keys/{key.pk}").text)
    assert owner.post(f"/keys/{key.pk}", {"action": "limits", "rpm": "60", "tpm": ""}).status_code == 302
    assert ApiKey.objects.filter(pk=key.pk, rpm=60, tpm=None).exists()
    assert owner.post(f"/keys/{key.pk}", {"action": "limits", "rpm": "-1"}).status_code == 422
    assert owner.post(deletion(key)).status_code == 302
    assert ApiKey.objects.filter(pk=key.pk, deleted_at=None).count() == 0


def test_a_key_made_on_the_page_says_by_whom_and_one_of_a_command_is_for_owners(
    member: Client, account: Account
) -> None:
    create(member, account)
    assert ApiKey.objects.get().created_by == User.objects.get(email=MEMBER)
    made, _ = keys.issue(account, name="by-command")
    assert member.post(deletion(made)).status_code == 403


@pytest.mark.parametrize(("name", "expected"), [("server", "already has a key named"), (" ", "1 to 200 printable")])
def test_a_key_is_renamed_to_a_name_that_is_free(member: Client, key: ApiKey, name: str, expected: str) -> None:
    keys.issue(key.account, name="server")
    response = member.post(f"/keys/{key.pk}", {"action": "rename", "name": name})
    assert response.status_code == 422
    assert expected in plain(response.text)
    assert member.post(f"/keys/{key.pk}", {"action": "rename", "name": " notebook "}).status_code == 302
    assert ApiKey.objects.get(pk=key.pk).name == "notebook"
    keys.delete(key)
    assert "notebook has already been deleted." in plain(member.get(f"/keys/{key.pk}", follow=True).text)


@pytest.mark.parametrize("fields", [{"is_playground": True}, {"expires_at": timezone.now() - timedelta(days=1)}])
def test_a_key_that_cannot_be_rotated_offers_no_rotation(member: Client, key: ApiKey, fields: dict[str, Any]) -> None:
    rotation = f"/keys/{key.pk}/rotate"
    assert rotation in member.get("/keys").text
    assert rotation in member.get(f"/keys/{key.pk}").text
    ApiKey.objects.filter(pk=key.pk).update(**fields)
    assert rotation not in member.get("/keys").text
    assert rotation not in member.get(f"/keys/{key.pk}").text
    assert member.post(rotation, {"overlap": "0"}).status_code in (404, 422)
