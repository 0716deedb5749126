"""Usage by alias is shown under the alias's current name, or its last one."""

import re

import pytest
from django.test import Client

from accounts.models import Account
from aliases import changes
from aliases.models import Alias
from aliases.targets import Target
from tests.billing.records import open_for
from tests.dashboard.usage import links, rows, used, words

pytestmark = pytest.mark.django_db
TARGET = Target("sim", "test/echo", "FRPAR")


def by_alias(client: Client) -> str:
    return client.get("/usage", {"by": "alias"}).text


def alias_of(account: Account, name: str) -> Alias:
    """Makes an alias that was used once under this name."""
    alias = changes.create(account.pk, name, TARGET)
    used(account, alias_id=alias.pk, requested_alias=alias.full_name)
    return alias


def test_an_alias_is_shown_by_its_present_name(member: Client, account: Account) -> None:
    alias_of(account, "fast")
    changes.change(account.pk, "fast", name="quick")
    assert rows(by_alias(member), "groups")[0].startswith("alias/quick 1 ")


def test_a_deleted_alias_keeps_its_last_name_and_its_usage(member: Client, account: Account) -> None:
    alias_of(account, "fast")
    changes.change(account.pk, "fast", name="quick")
    changes.delete(account.pk, "quick")
    alias_of(account, "quick")
    used(account, 1)
    html = by_alias(member)
    # The end of its id distinguishes an alias from another one of the same name.
    assert sorted(re.sub(r"…\w{4}", "…", row.split(" 1,000")[0]) for row in rows(html, "groups")) == [
        "alias/quick deleted … 1",
        "alias/quick … 1",
        "no alias 1",
    ]
    for address in links(html, "alias/quick"):
        assert "Requests 1 Tokens" in words(member, address)


def test_another_accounts_alias_is_not_found(member: Client, account: Account) -> None:
    foreign = open_for("stranger@example.com", name="Foreign")
    live, gone = alias_of(foreign, "live"), alias_of(foreign, "gone")
    changes.delete(foreign.pk, "gone")
    for alias_id in (live.pk, gone.pk):
        assert member.get("/usage", {"alias": str(alias_id)}).status_code == 404
    used(account, alias_id=live.pk)  # the product offers no way to do this
    assert "alias/live" not in by_alias(member)
