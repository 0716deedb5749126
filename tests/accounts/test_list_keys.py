"""`list_keys` prints an account's keys, with no more of their tokens than the pages show."""

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounts import keys
from accounts.models import Account, ApiKey
from tests.billing.records import open_for

pytestmark = pytest.mark.django_db


def listed(*options: str) -> str:
    out = io.StringIO()
    call_command("list_keys", "Acme", *options, stdout=out)
    return out.getvalue()


def described(*options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(listed("--json", *options))
    return found


@pytest.fixture
def acme() -> Account:
    return open_for(name="Acme")


def test_keys_are_listed_with_their_states_newest_first(acme: Account) -> None:
    deleted, _ = keys.issue(acme, name="deleted")
    keys.delete(deleted)
    expired, _ = keys.issue(acme, name="expired")
    ApiKey.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(days=1))
    usable, token = keys.issue(acme, name="usable", lifetime="never", rpm=5)
    keys.issue(open_for(name="Zenith"), name="another's")
    assert [(key["name"], key["state"]) for key in described()] == [("usable", "usable"), ("expired", "expired")]
    assert [(key["name"], key["state"]) for key in described("--deleted")][2:] == [("deleted", "deleted")]
    newest = described()[0]
    assert (newest["id"], newest["rpm"], newest["tpm"]) == (str(usable.pk), 5, None)
    assert (newest["expires_at"], newest["last_used_at"]) == (None, None)
    assert newest["token"] == f"sk-gw-…{token[-4:]}"
    assert token not in listed("--json") + listed()


def test_people_get_a_table(acme: Account) -> None:
    key, _ = keys.issue(acme, name="laptop", lifetime="never")
    heading, row = listed().splitlines()
    assert heading.split() == ["NAME", "ID", "TOKEN", "STATE", "CREATED", "EXPIRES", "LAST_USED"]
    assert row.split()[:4] == ["laptop", str(key.pk), key.masked, "usable"]


def test_an_account_that_is_not_there_is_a_refusal() -> None:
    with pytest.raises(CommandError, match="There is no account 'Acme'"):
        listed()
