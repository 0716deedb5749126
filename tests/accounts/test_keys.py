"""An API key stores only parts of its token, and only for some time (docs/api.md#authentication)."""

import base64
import hashlib
import re
import uuid
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from accounts import keys
from accounts.keys import bearer_token, caller_of, verify_key
from accounts.models import Account, ApiKey
from gateway.errors import ApiError, ApiKeyExpired, ApiKeyNotRegistered
from gateway.observing.request_events import EVENT, RequestEvent
from inference.authentication import authenticate
from tests.factories import new_account, new_key

pytestmark = pytest.mark.django_db


@pytest.fixture
def acme() -> Account:
    return new_account("Acme", credit=None)


def stored(key: ApiKey) -> ApiKey:
    return ApiKey.objects.get(pk=key.pk)


def refusal(token: str) -> str | None:
    with pytest.raises(ApiError) as caught:
        caller_of(token)
    return caught.value.code


def test_a_token_is_the_prefix_and_43_characters_that_nobody_can_guess() -> None:
    made = {keys.new_token() for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"sk-gw-[A-Za-z0-9_-]{43}", token) for token in made)
    assert all(len(base64.urlsafe_b64decode(token.removeprefix("sk-gw-") + "=")) == 32 for token in made)


def test_a_token_lets_its_account_in(acme: Account) -> None:
    key, token = new_key(acme)
    caller = caller_of(bearer_token(f"Bearer {token}"))
    assert (caller.key_id, caller.account_id, caller.currency) == (key.pk, acme.pk, "EUR")


def test_nothing_of_a_token_is_stored_but_its_last_four_characters(acme: Account) -> None:
    """The test searches every column of the table, as a thief of the database would."""
    _, token = new_key(acme)
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM accounts_apikey")
        row = cursor.fetchone()
    cells = [bytes(cell) if isinstance(cell, memoryview) else cell for cell in row]
    text = b"\n".join(cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells)
    body = token.removeprefix("sk-gw-")
    parts = {body[start : start + 5].encode() for start in range(len(body) - 4)}
    assert [part for part in parts if part in text] == []
    secret = base64.urlsafe_b64decode(body + "=")
    assert secret[:8] not in text
    assert text.count(body[-4:].encode()) == 1


def test_the_two_digests_do_not_give_each_other_away(acme: Account) -> None:
    key, token = new_key(acme)
    row = stored(key)
    digests = {bytes(row.fingerprint or b""), bytes(row.verifier or b""), hashlib.sha256(token.encode()).digest()}
    assert {len(digest) for digest in digests} == {32}
    assert len(digests) == 3


def test_keys_do_not_depend_on_the_secret_key(acme: Account, settings: object) -> None:
    _, token = new_key(acme)
    settings.SECRET_KEY = "rotated"  # type: ignore[attr-defined]  # pytest-django's wrapper
    assert caller_of(token).account_id == acme.pk


def test_a_key_shows_its_prefix_and_last_four(acme: Account) -> None:
    key, token = new_key(acme, "laptop")
    assert stored(key).masked == f"sk-gw-…{token[-4:]}"
    assert str(stored(key)) == f"laptop (sk-gw-…{token[-4:]})"


@pytest.mark.parametrize(
    ("lifetime", "days"), [("7d", 7), ("30d", 30), ("90d", 90), ("180d", 180), ("1y", 365), ("never", None)]
)
def test_a_key_lives_for_the_time_that_was_chosen(acme: Account, lifetime: str, days: int | None) -> None:
    before = timezone.now()
    expires_at = stored(new_key(acme, lifetime=lifetime)[0]).expires_at
    if days is None:
        assert expires_at is None
    else:
        assert expires_at is not None
        assert timedelta() <= expires_at - before - timedelta(days=days) < timedelta(seconds=10)


def test_the_usual_lifetime_is_90_days(acme: Account) -> None:
    key, _ = new_key(acme)
    assert key.expires_at is not None
    assert round((key.expires_at - timezone.now()) / timedelta(days=1)) == 90


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "two\nlines", "\udcff"])
def test_a_name_is_short_and_printable(acme: Account, name: str) -> None:
    with pytest.raises(keys.InvalidKeyName):
        new_key(acme, name)
    assert not ApiKey.objects.exists()


def test_a_name_is_unique_among_the_live_keys_of_one_account(acme: Account) -> None:
    first, _ = new_key(acme, "laptop")
    with pytest.raises(keys.KeyNameTaken):
        new_key(acme, " laptop ")
    new_key(new_account(credit=None), "laptop")
    keys.delete(first)
    second, _ = new_key(acme, "laptop")
    assert keys.find(acme, "laptop") == second


def test_an_expired_key_keeps_its_name(acme: Account) -> None:
    new_key(acme, "laptop")
    ApiKey.objects.update(expires_at=timezone.now() - timedelta(days=1))
    with pytest.raises(keys.KeyNameTaken):
        new_key(acme, "laptop")


def test_the_database_itself_keeps_names_unique(acme: Account) -> None:
    key, _ = new_key(acme, "laptop")
    copy = ApiKey(account=acme, name="laptop", fingerprint=b"x" * 32, verifier=key.verifier, last_four="")
    with pytest.raises(IntegrityError), transaction.atomic():
        copy.save()


def test_a_deleted_key_is_not_registered_and_keeps_no_secret(acme: Account) -> None:
    key, token = new_key(acme)
    assert keys.delete(key) is True
    row = stored(key)
    assert (row.fingerprint, row.verifier, row.name) == (None, None, "test")
    assert row.deleted_at is not None
    assert refusal(token) == "api_key_not_registered"


def test_deleting_twice_changes_nothing(acme: Account) -> None:
    key, _ = new_key(acme)
    keys.delete(key)
    before = stored(key).deleted_at
    assert keys.delete(key) is False
    assert stored(key).deleted_at == before


def test_the_database_keeps_no_secret_of_a_deleted_key(acme: Account) -> None:
    key, _ = new_key(acme)
    with pytest.raises(IntegrityError), transaction.atomic():
        ApiKey.objects.filter(pk=key.pk).update(deleted_at=timezone.now())


def test_expiry_is_decided_by_the_clock_before_any_purge(acme: Account) -> None:
    key, token = new_key(acme)
    ApiKey.objects.update(expires_at=timezone.now())
    assert stored(key).verifier is not None
    assert refusal(token) == "api_key_expired"


def test_a_purge_removes_the_proof_and_still_knows_the_key(acme: Account) -> None:
    expired, token = new_key(acme, "expired")
    living, other = new_key(acme, "living")
    eternal, _ = new_key(acme, "eternal", lifetime="never")
    now = timezone.now()
    ApiKey.objects.filter(pk=expired.pk).update(expires_at=now)
    assert keys.purge_expired(now) == 1
    assert keys.purge_expired(now) == 0
    assert (stored(expired).verifier, bytes(stored(expired).fingerprint or b"")) == (None, keys.fingerprint(token))
    assert stored(living).verifier is not None
    assert stored(eternal).verifier is not None
    assert refusal(token) == "api_key_expired"
    assert caller_of(other).key_id == living.pk


def test_a_fingerprint_alone_proves_nothing() -> None:
    now, token = timezone.now(), keys.new_token()
    for verifier in (None, b"", keys.verifier(keys.new_token()), keys.fingerprint(token)):
        with pytest.raises(ApiKeyNotRegistered):
            verify_key(token, verifier, None, now)
    verify_key(token, keys.verifier(token), None, now)


def test_a_key_is_good_until_the_very_moment() -> None:
    now, token = timezone.now(), keys.new_token()
    verify_key(token, keys.verifier(token), now + timedelta(microseconds=1), now)
    with pytest.raises(ApiKeyExpired):
        verify_key(token, keys.verifier(token), now, now)


def test_a_former_token_works_while_another_rotation_replaces_the_present_one(
    acme: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, token = new_key(acme)
    keys.rotate(key, timedelta(hours=1))
    find = keys.key_of_former_token

    def find_and_rotate(former: str) -> tuple[uuid.UUID, bytes]:
        found = find(former)
        keys.rotate(key, timedelta(hours=1))
        return found

    monkeypatch.setattr(keys, "key_of_former_token", find_and_rotate)
    assert caller_of(token).key_id == key.pk
    assert authenticate(token, {EVENT: RequestEvent("POST")}).key_id == key.pk
