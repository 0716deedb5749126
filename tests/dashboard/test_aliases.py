"""Members manage aliases on the dashboard's pages, and other people find none of them."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from accounts import keys
from accounts.models import Account, AuditEvent, User
from aliases import changes
from aliases.models import Alias, AliasEvent
from aliases.targets import Target
from billing.policies import Holder, set_policy
from catalogue.models import Region
from catalogue.routing import quota
from tests.aliases.caller import CHUNKS, ECHO
from tests.billing.records import MEMBER, fail, open_for, serve
from tests.dashboard.people import joined, words
from tests.page_text import plain

ECHO_TARGET = Target("sim", "test/echo", "FRPAR")


@pytest.fixture
def account(served: None) -> Account:
    return open_for(MEMBER)


@pytest.fixture
def alias(account: Account) -> Alias:
    return changes.create(account.pk, "fast", ECHO_TARGET)


@pytest.fixture
def owner(account: Account) -> Client:
    client = Client()
    client.force_login(joined(account, "owner@acme.example", "owner").user)
    return client


def address(alias: Alias) -> str:
    return f"/aliases/{alias.pk}"


def choices(text: str) -> list[str]:
    """Returns the options of the picker."""
    return re.findall(r'<option value="([^"]+)"', text)


def test_other_verbs_do_nothing(member: Client, alias: Alias) -> None:
    for path in ("/aliases", address(alias), f"{address(alias)}/delete"):
        assert {getattr(member, verb)(path).status_code for verb in ("put", "patch", "delete")} == {405}
    assert Alias.objects.exists()


@pytest.mark.parametrize("staff", [False, True])
@pytest.mark.parametrize("has_own", [False, True])
def test_people_of_other_accounts_find_nothing_by_any_verb(
    client: Client, alias: Alias, staff: bool, has_own: bool
) -> None:
    client.force_login(User.objects.create_user("somebody@example.com", is_staff=staff))
    if has_own:
        open_for("somebody@example.com", name="Theirs")
    account = str(alias.account_id)
    assert client.post("/aliases", {"account": account, "name": "mine", "target": ECHO}).status_code == 404
    if has_own:
        assert client.get("/aliases", {"account": account}).status_code == 404
        assert client.head("/aliases", {"account": account}).status_code == 404
    for path in (address(alias), f"{address(alias)}/delete"):
        assert client.get(path).status_code == 404
        assert client.head(path).status_code == 404
    for fields in ({"action": "rename", "name": "mine"}, {"action": "repoint", "target": CHUNKS}, {}):
        assert client.post(address(alias), fields).status_code == 404
    assert client.post(f"{address(alias)}/delete").status_code == 404
    alias.refresh_from_db()
    assert (alias.name, alias.target, Alias.objects.count(), AliasEvent.objects.count()) == ("fast", ECHO, 1, 1)


@pytest.mark.parametrize("path", ["/aliases?account=nonsense", "/aliases?account=", "/aliases?account={id}"])
def test_an_unknown_account_is_not_found(member: Client, path: str) -> None:
    absent = "0199f000-0000-7000-8000-000000000000"
    assert member.get(path.replace("{id}", absent)).status_code == 404
    assert member.get(f"/aliases/{absent}").status_code == 404


def test_a_person_without_an_account_is_welcomed(client: Client, served: None) -> None:
    client.force_login(User.objects.create_user("new@example.com"))
    assert "not a member of any account yet" in words(client, "/aliases")


def test_the_list_shows_target_use_and_cost_of_thirty_days(member: Client, account: Account, alias: Alias) -> None:
    serve(account, alias_id=alias.pk)
    serve(account, alias_id=alias.pk)
    serve(account)
    text = words(member, "/aliases")
    assert "1 of 5 in use" in text
    assert re.search(rf"alias/fast {ECHO} 2 0\.0 % 2,400 0\.0014", text)


def test_the_list_counts_failed_requests_of_an_alias_too(member: Client, account: Account, alias: Alias) -> None:
    assert f"alias/fast {ECHO} 0" in words(member, "/aliases")
    fail(account, alias_id=alias.pk)
    assert f"alias/fast {ECHO} 1 100.0 % 0 0.00" in words(member, "/aliases")
    serve(account, alias_id=alias.pk)
    assert f"alias/fast {ECHO} 2 50.0 % 1,200 0.0007" in words(member, "/aliases")


def test_the_list_marks_what_is_not_served(member: Client, alias: Alias) -> None:
    Alias.objects.update(canonical_id="test/resting")
    text = member.get("/aliases").text
    assert "not served" in text
    assert "Being moved to new hardware." in text
    assert "Requests are currently refused." in words(member, address(alias))


def test_the_page_of_an_account_without_aliases_explains_them(member: Client) -> None:
    assert "No aliases yet." in words(member, "/aliases")


def test_the_picker_offers_what_is_routable_now(member: Client, account: Account) -> None:
    region = Region.objects.get(model__canonical_id="test/quota")
    quota.spend(region, quota.day_of(timezone.now()))
    offered = choices(member.get("/aliases").text)
    assert {ECHO, CHUNKS, "sim/test/worldwide/global", "sim/test/embedding/FRPAR", "simus/test/echo/USQAS"} <= {
        *offered
    }
    absent = ("resting", "gone", "retired", "unpriced", "realtime", "unknown-modality", "pounds", "quota")
    assert not {f"sim/test/{slug}/FRPAR" for slug in absent} & {*offered}
    assert "sim/test/half-closed/DEFRA" not in offered
    assert not [choice for choice in offered if choice.startswith("nokey/")]
    assert re.search(r'<input [^>]*list="create-target-routes"', member.get("/aliases").text)
    assert '<datalist id="create-target-routes">' in member.get("/aliases").text
    assert re.search(rf'<option value="{ECHO}">[^<]*Paris', member.get("/aliases").text)


def test_everything_the_picker_offers_can_be_created(member: Client, account: Account) -> None:
    Account.objects.update(alias_limit=1000)
    offered = choices(member.get("/aliases").text)
    for number, target in enumerate(offered):
        fields = {"account": str(account.pk), "name": f"n{number}", "target": target}
        assert member.post("/aliases", fields).status_code == 302
    assert {alias.target for alias in Alias.objects.all()} == {*offered}


def test_a_form_creates(member: Client, account: Account) -> None:
    fields = {"account": str(account.pk), "name": "Fast", "target": ECHO}
    response = member.post("/aliases", fields, follow=True)
    assert response.redirect_chain == [(f"/aliases?account={account.pk}", 302)]
    assert "alias/fast has been created." in plain(response.text)
    assert (Alias.objects.get().name, AliasEvent.objects.get().event_type) == ("fast", "created")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "-", "target": ECHO}, "The name starts with a letter or a digit."),
        ({"name": "", "target": ECHO}, "This field is required."),
        ({"name": "new", "target": ""}, "This field is required."),
        ({"name": "new"}, "This field is required."),
        ({"name": "new", "target": "nonsense"}, "'nonsense' is not the id of a route, such as "),
        ({"name": "new", "target": "sim/test/ecko/FRPAR"}, "Did you mean `sim/test/echo`"),
        ({"name": "new", "target": "sim/test/gone/FRPAR"}, "is disabled"),
        ({"name": "new", "target": "sim/test/echo"}, "served only in specific regions"),
        ({"name": "fast", "target": ECHO}, "This account already has an alias named 'fast'."),
        ({"name": "<b>\x00", "target": ECHO}, "Null characters are not allowed."),
    ],
)
def test_a_form_at_fault_is_shown_again_with_the_reason(
    member: Client, alias: Alias, fields: dict[str, str], expected: str
) -> None:
    response = member.post("/aliases", {"account": str(alias.account_id), **fields})
    assert response.status_code == 422
    assert expected in plain(response.text)
    assert 'aria-invalid="true"' in response.text
    assert "<b>" not in response.text
    assert Alias.objects.count() == 1


def test_a_form_says_that_the_slots_are_full(member: Client, account: Account) -> None:
    Account.objects.update(alias_limit=0)
    response = member.post("/aliases", {"account": str(account.pk), "name": "fast", "target": ECHO})
    assert response.status_code == 422
    assert "Alias limit reached (0)." in plain(response.text)


def test_the_page_says_that_the_slots_are_full_before_a_form_is_filled_in(member: Client, alias: Alias) -> None:
    full = "All aliases of this account are in use. Delete one, or ask the gateway's operator for more."
    assert full not in words(member, "/aliases")
    Account.objects.update(alias_limit=1)
    assert full in words(member, "/aliases")
    assert choices(member.get("/aliases").text) == []


def test_a_form_that_changes_nothing_says_so(member: Client, alias: Alias) -> None:
    for fields, expected in (
        ({"action": "rename", "name": "FAST"}, "No change: the name is already alias/fast."),
        ({"action": "repoint", "target": ECHO}, f"No change: the target of alias/fast is already {ECHO}."),
    ):
        assert expected in plain(member.post(address(alias), fields, follow=True).text)
    assert AliasEvent.objects.count() == 1


def test_a_form_renames(member: Client, alias: Alias) -> None:
    response = member.post(address(alias), {"action": "rename", "name": "quick"}, follow=True)
    assert response.redirect_chain == [(address(alias), 302)]
    assert "alias/fast has been renamed to alias/quick." in plain(response.text)
    assert "renamed alias/fast alias/quick" in plain(response.text)


def test_a_new_target_is_compared_with_the_present_one_before_it_is_confirmed(member: Client, alias: Alias) -> None:
    page = member.get(address(alias), {"target": "sim/test/echo/DEFRA"})
    text = plain(page.text)
    assert "Change the target of alias/fast?" in text
    assert f"Now {ECHO} New sim/test/echo/DEFRA" in text
    marked = re.findall(r'<tr role="row" class="differs"><th role="rowheader" scope="row">([\w ]+)', page.text)
    assert "Place" in marked
    assert "Context" not in marked
    assert Alias.objects.get().target == ECHO
    confirmed = member.post(address(alias), {"action": "repoint", "target": "sim/test/echo/DEFRA"})
    assert (confirmed.status_code, Alias.objects.get().target) == (302, "sim/test/echo/DEFRA")


def test_the_comparison_says_that_the_accounts_policy_does_not_allow_the_new_target(
    member: Client, account: Account, alias: Alias
) -> None:
    move = {"target": "sim/test/echo/DEFRA"}
    assert "refused with 403" not in plain(member.get(address(alias), move).text)
    set_policy(Holder.of_account(account), {"locodes": ["FRPAR"]})
    text = plain(member.get(address(alias), move).text)
    assert (
        "Requests for this alias would be refused with 403: The account's policy does not allow region 'DEFRA'." in text
    )


def test_the_present_target_is_not_compared_with_itself(member: Client, alias: Alias) -> None:
    response = member.get(address(alias), {"target": ECHO})
    assert response.status_code == 422
    assert "alias/fast has this target already." in plain(response.text)


def test_a_comparison_with_a_target_that_has_gone_shows_the_new_one(member: Client, alias: Alias) -> None:
    Alias.objects.update(canonical_id="test/forgotten")
    text = plain(member.get(address(alias), {"target": ECHO}).text)
    assert "The present target sim/test/forgotten/FRPAR is not in the catalogue any more." in text
    assert "The new target" in text
    assert "What changes" not in text


@pytest.mark.parametrize("target", ["", "nonsense", "sim/test/gone/FRPAR", "sim/test/echo/\x00"])
def test_a_target_that_cannot_be_compared_is_refused_with_the_reason(member: Client, alias: Alias, target: str) -> None:
    response = member.get(address(alias), {"target": target})
    assert response.status_code == 422
    assert 'role="alert"' in response.text


def test_each_line_of_the_history_can_be_restored(member: Client, alias: Alias) -> None:
    assert "Restore" not in member.get(address(alias)).text  # all of it is in force
    member.post(address(alias), {"action": "repoint", "target": CHUNKS})
    member.post(address(alias), {"action": "rename", "name": "quick"})
    member.post(address(alias), {"action": "rename", "name": "fast"})
    member.post(address(alias), {"action": "fallbacks", "fallbacks": ECHO})
    member.post(address(alias), {"action": "fallbacks", "fallbacks": ""})
    text = member.get(address(alias)).text
    assert re.findall(r'href="\?target=([^"]+)">Restore', text) == [ECHO]
    assert re.findall(r'name="(name|fallbacks)" value="([^"]*)">\s*<button[^>]*>Restore', text) == [
        ("fallbacks", ECHO),
        ("name", "quick"),
    ]
    assert "Change the target of alias/fast?" in member.get(address(alias), {"target": ECHO}).text


def test_owners_may_keep_changes_to_themselves(member: Client, owner: Client, alias: Alias) -> None:
    account = alias.account
    own = {"action": "owners", "account": str(account.pk), "is_reserved": "on"}
    assert member.post("/aliases", own).status_code == 403
    assert owner.post("/aliases", own).status_code == 302
    for path in ("/aliases", address(alias)):
        text = plain(member.get(path).text)
        assert "Only owners of this account" in text
        assert "<form" not in member.get(path).text.partition("<main")[2]
    for path in (f"{address(alias)}?target={CHUNKS}", f"{address(alias)}/delete"):
        assert member.get(path).status_code == 403
    changes_of_a_member = [
        (address(alias), {"action": "repoint", "target": CHUNKS}),
        (address(alias), {"action": "rename", "name": "quick"}),
        (address(alias), {"action": "fallbacks", "fallbacks": CHUNKS}),
        (f"{address(alias)}/delete", {}),
        ("/aliases", {"account": str(account.pk), "name": "mine", "target": ECHO}),
    ]
    for path, fields in changes_of_a_member:
        assert member.post(path, fields).status_code == 403, fields
    assert (Alias.objects.get().name, Alias.objects.get().target) == ("fast", ECHO)
    assert owner.post(address(alias), {"action": "repoint", "target": CHUNKS}).status_code == 302
    del own["is_reserved"]
    assert owner.post("/aliases", own).status_code == 302
    assert member.post(address(alias), {"action": "repoint", "target": ECHO}).status_code == 302
    written = AuditEvent.objects.filter(account=account, action="account.changed").order_by("pk")
    assert [each.new for each in written] == [
        {"only_owners_change_aliases": True},
        {"only_owners_change_aliases": False},
    ]


def test_a_form_repoints(member: Client, alias: Alias) -> None:
    response = member.post(address(alias), {"action": "repoint", "target": CHUNKS}, follow=True)
    assert f"The target of alias/fast is now {CHUNKS}." in plain(response.text)
    assert f"target changed {ECHO} {CHUNKS}" in plain(response.text)
    assert Alias.objects.get().target == CHUNKS


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"action": "rename", "name": "other"}, "already has an alias named 'other'"),
        ({"action": "rename", "name": "a b"}, "Not allowed in a name: ' '."),
        ({"action": "repoint", "target": "sim/test/gone/FRPAR"}, "is disabled"),
        ({"action": "repoint", "target": ""}, "This field is required."),
    ],
)
def test_a_change_at_fault_is_shown_again_with_the_reason(
    member: Client, alias: Alias, fields: dict[str, str], expected: str
) -> None:
    changes.create(alias.account_id, "other", ECHO_TARGET)
    response = member.post(address(alias), fields)
    assert response.status_code == 422
    assert expected in plain(response.text)
    alias.refresh_from_db()
    assert (alias.name, alias.target) == ("fast", ECHO)


def test_a_form_without_an_action_changes_nothing(member: Client, alias: Alias) -> None:
    assert member.post(address(alias), {"name": "quick", "target": CHUNKS}).status_code == 200
    assert Alias.objects.get().name == "fast"


def test_a_target_that_is_not_available_now_can_be_kept(member: Client, alias: Alias) -> None:
    Alias.objects.update(canonical_id="test/resting")
    assert "sim/test/resting/FRPAR" not in choices(member.get(address(alias)).text)
    sent = member.post(address(alias), {"action": "repoint", "target": "sim/test/resting/FRPAR"})
    assert sent.status_code == 302
    assert AliasEvent.objects.count() == 1


def test_deleting_asks_first(member: Client, alias: Alias) -> None:
    assert "Delete alias/fast?" in words(member, f"{address(alias)}/delete")
    assert Alias.objects.exists()
    response = member.post(f"{address(alias)}/delete", follow=True)
    assert response.redirect_chain == [(f"/aliases?account={alias.account_id}", 302)]
    assert "alias/fast has been deleted." in plain(response.text)
    assert not Alias.objects.exists()


def test_a_page_that_is_out_of_date_deletes_no_other_alias(member: Client, alias: Alias) -> None:
    changes.delete(alias.account_id, "fast")
    changes.create(alias.account_id, "fast", ECHO_TARGET)
    for path, fields in ((f"{address(alias)}/delete", {}), (address(alias), {"action": "rename", "name": "quick"})):
        response = member.post(path, fields, follow=True)
        assert response.redirect_chain == [(f"/aliases?account={alias.account_id}", 302)]
        assert "alias/fast has already been deleted." in plain(response.text)
    assert Alias.objects.get().name == "fast"


def test_a_deleted_alias_of_somebody_else_is_not_there(client: Client, alias: Alias) -> None:
    changes.delete(alias.account_id, "fast")
    open_for("somebody@example.com", name="Theirs")
    client.force_login(User.objects.get(email="somebody@example.com"))
    for path in (address(alias), f"{address(alias)}/delete"):
        for send in (client.get, client.head, client.post):
            assert send(path).status_code == 404


def test_an_alias_shows_its_statistics(member: Client, account: Account, alias: Alias) -> None:
    assert "No requests in the last 30 days." in words(member, address(alias))
    serve(account, duration_ms=60_000, first_token_ms=30_000)
    serve(account, alias_id=alias.pk, model="test/echo", first_token_ms=300)
    serve(account, alias_id=alias.pk, model="test/echo", region="DEFRA", carbon_gco2e=None)
    text = words(member, address(alias))
    assert (
        "Latency, p50 0.83 s p95: 0.86 s Time to first token, p50 0.29 s p95: 0.3 s Output, median 380 tokens/s" in text
    )
    assert "Requests 2 Tokens 2,400 2,000 in, 400 out Cost < 0.01 EUR" in text
    assert "known for 1 of 2" in text
    assert "sim/test/echo/DEFRA 1 1,000 / 200 0.0007" in text


def test_ones_other_account_is_a_click_away(member: Client, account: Account, alias: Alias) -> None:
    beta = open_for(MEMBER, name="Beta", currency="USD")
    first, second = member.get("/aliases").text, member.get(f"/aliases?account={beta.pk}").text
    assert f'href="/aliases?account={beta.pk}"' in first
    assert ("alias/fast" in first, "alias/fast" in second) == (True, False)
    assert f'<input type="hidden" name="account" value="{beta.pk}">' in second
    assert member.get(f"/?account={beta.pk}").text.count(f"/aliases?account={beta.pk}") == 1
    assert "Acme" in words(member, address(alias))


def test_pages_keep_the_strict_policy_and_are_not_cached(member: Client, alias: Alias) -> None:
    for path in ("/", "/aliases", address(alias), f"{address(alias)}/delete"):
        response = member.get(path)
        assert "unsafe-inline" not in response["Content-Security-Policy"]
        assert "no-store" in response["Cache-Control"]
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", response.text)
        assert 'href="/aliases' in response.text


def test_the_history_says_who_did_it(member: Client, alias: Alias) -> None:
    member.post(f"/aliases/{alias.pk}", {"action": "rename", "name": "quick"})
    key, _ = keys.issue(alias.account, name="deployer")
    changes.change(alias.account_id, "quick", name="fast", by=key.pk)
    by = [(event.by and event.by.email, event.by_key) for event in AliasEvent.objects.filter(alias_id=alias.pk)]
    assert by == [(None, key), (MEMBER, None), (None, None)]
    page = plain(member.get(f"/aliases/{alias.pk}").text)
    assert "alias/quick alias/fast key deployer" in page
    assert f"alias/fast alias/quick {MEMBER}" in page
    User.objects.filter(email=MEMBER).delete()
    assert AliasEvent.objects.filter(by=None).count() == 3
