"""One box on every page of the admin finds accounts, people, keys, generations and failures."""

import re
from html import unescape
from uuid import UUID

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from accounts.models import Account, ApiKey, User
from gateway.pages.admin_search import MOST_FOUND
from tests.billing.records import MEMBER, fail, key_of, open_for, serve
from tests.dashboard.usage import seen

pytestmark = pytest.mark.django_db

SEARCH = "/admin/search/"


@pytest.fixture
def account() -> Account:
    return open_for(MEMBER)


def found(client: Client, term: str) -> dict[str, list[str]]:
    """Returns the names of the results by the heading of their group."""
    text = client.get(SEARCH, {"q": term}).text
    groups = re.findall(r'class="module found">\s*<h2>(.*?)</h2>(.*?)</div>', text, re.DOTALL)
    return {name: re.findall(r'<li><a href="[^"]+">(.*?)</a>', rows) for name, rows in groups}


def test_the_box_is_on_every_kind_of_page(staff: Client, account: Account) -> None:
    for page in ("/admin/", "/admin/accounts/account/", f"/admin/accounts/account/{account.pk}/change/", SEARCH):
        assert f'action="{SEARCH}" role="search"' in staff.get(page).text


def test_names_find_accounts_people_and_keys_by_any_part(staff: Client, account: Account) -> None:
    key = key_of(account)
    assert found(staff, "CM") == {"Accounts": ["Acme"]}
    assert found(staff, "member@") == {"Users": [MEMBER]}
    assert found(staff, "tes") == {"API keys": [str(key)]}
    assert found(staff, key.last_four)["API keys"] == [str(key)]
    assert found(staff, key.masked) == {"API keys": [str(key)]}


@pytest.mark.parametrize(
    "term", ["", " ", "nothing like it", "\0", "a\0b", "%", "x" * 5000, "gen-", "'", "\N{ARABIC-INDIC DIGIT ONE}" * 8]
)
def test_what_matches_nothing_finds_nothing(staff: Client, account: Account, term: str) -> None:
    serve(account)
    assert found(staff, term) == {}


def test_a_whole_id_leads_to_its_page_at_once(staff: Client, account: Account) -> None:
    generation, key = serve(account), key_of(account)
    failure = fail(account)
    pages = {
        generation.public_id: f"billing/generation/{generation.pk}",
        f"req-{generation.pk.hex}": f"billing/generation/{generation.pk}",
        str(generation.pk): f"billing/generation/{generation.pk}",
        f" {generation.pk.hex.upper()} ": f"billing/generation/{generation.pk}",
        failure.request_id: f"billing/requestfailure/{failure.pk}",
        str(account.pk): f"accounts/account/{account.pk}",
        str(key.pk): f"accounts/apikey/{key.pk}",
    }
    assert {term: staff.get(SEARCH, {"q": term})["Location"] for term in pages} == {
        term: f"/admin/{page}/change/" for term, page in pages.items()
    }


def test_the_beginning_of_an_id_is_enough(staff: Client, account: Account) -> None:
    generation = serve(account)
    assert generation.public_id in found(staff, generation.pk.hex[:8])["Generations"]
    unique = f"gen-{generation.pk.hex[:20]}"
    assert staff.get(SEARCH, {"q": unique})["Location"] == f"/admin/billing/generation/{generation.pk}/change/"
    assert found(staff, generation.pk.hex[:7]) == {}


def test_a_key_whose_name_looks_like_an_id_does_not_hide_what_has_it(staff: Client, account: Account) -> None:
    generation, key = serve(account), key_of(account)
    ApiKey.objects.filter(pk=key.pk).update(name=generation.pk.hex)
    key.refresh_from_db()
    assert found(staff, generation.pk.hex) == {"API keys": [str(key)], "Generations": [generation.public_id]}


def test_a_prefix_of_answers_leaves_out_failures(staff: Client, account: Account) -> None:
    generation = serve(account)
    failure = fail(account)
    type(failure).objects.filter(pk=failure.pk).update(id=generation.pk, has_record=True)
    assert set(found(staff, f"req-{generation.pk.hex}")) == {"Generations", "Request failures"}
    assert staff.get(SEARCH, {"q": generation.public_id}).status_code == 302


def test_results_lead_to_the_dashboard_of_their_account(staff: Client, account: Account) -> None:
    generation, failure = serve(account), fail(account)
    type(failure).objects.filter(pk=failure.pk).update(id=generation.pk)
    texts = [staff.get(SEARCH, {"q": term}).text for term in ("acme", "test", generation.pk.hex)]
    links = [unescape(link) for text in texts for link in re.findall(r'href="([^"]+)" aria-label="Dashboard', text)]
    assert [link.split("?")[0].rpartition("/")[0] for link in links] == ["", "", "/usage/records", "/usage/failures"]
    assert {staff.get(link).status_code for link in links} == {200}


def test_a_kind_is_searched_only_for_those_who_may_view_it(client: Client, account: Account) -> None:
    served = [serve(account, id=UUID(int=0xABCDEF12 << 96 | number)) for number in (1, 2)]
    person = User.objects.create_user("staff@example.com", is_staff=True)
    client.force_login(person)
    terms = {"acme": "Accounts", "test": "API keys", MEMBER: "Users", served[0].pk.hex[:9]: "Generations"}
    rights = {
        "view_account": "Accounts",
        "view_apikey": "API keys",
        "view_user": "Users",
        "view_generation": "Generations",
    }
    assert [found(client, term) for term in terms] == [{}] * 4
    for right, kind in rights.items():
        person.user_permissions.set([Permission.objects.get(codename=right)])
        assert {name for term in terms for name in found(client, term)} == {kind}
        assert ("Dashboard of" in client.get(SEARCH, {"q": "acme"}).text) is (kind == "Accounts")


def test_members_are_not_let_in(client: Client, account: Account) -> None:
    client.force_login(User.objects.get(email=MEMBER))
    assert client.get(SEARCH, {"q": "acme"})["Location"].startswith("/admin/login/")


def test_it_lists_a_few_of_each_kind_with_a_select_for_each(
    staff: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(MOST_FOUND + 1):
        serve(open_for(name=f"Acme {number}"))
    with django_assert_num_queries(7) as captured:  # session, person, five kinds
        text = staff.get(SEARCH, {"q": "0" * 8}).text
    assert all("LIMIT" in query["sql"] for query in captured.captured_queries[2:])
    assert len(found(staff, "acme")["Accounts (the first 20)"]) == MOST_FOUND
    assert "Nothing found." in seen(text)
