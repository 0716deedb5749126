"""Names of accounts and keys that look alike are one name, and names in any script are accepted."""

import unicodedata

import pytest
from django.core.exceptions import ValidationError
from django.test import Client

from accounts import keys
from accounts.models import Account, ApiKey, User
from billing.accounts import open_account
from tests.factories import new_account

pytestmark = pytest.mark.django_db
NFC, NFD = "caf\u00e9", "cafe\u0301"
WRITTEN = [
    "می\u200cخواهم",  # noqa: RUF001  # Persian, with a zero width non-joiner
    "ක්\u200dෂ",  # Sinhala, with a zero width joiner
    "👩🏽\u200d🔬 👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 🇫🇷",
    "שלום עולם 2026 (EU)",
]
NOT_PRINTABLE = [
    "\u200dabc",
    "abc\u200d",
    "a\u200db",
    "a\u200cb",
    "👩\u200d",
    "👩\u200d\u200d👧",
    "می\u200c خواهم",
    "a\u200bb",
    "a\u202eb",
]
BLANKS = ["A\u00a0B", " A  B ", "A\u3000B\u00a0", "A\u202f\u2009B"]


@pytest.fixture
def account() -> Account:
    return new_account()


def test_a_keys_name_is_one_however_its_accents_are_encoded(account: Account) -> None:
    assert NFC != NFD
    assert keys.issue(account, name=NFD)[0].name == NFC
    for name in (NFC, NFD):
        with pytest.raises(keys.KeyNameTaken):
            keys.issue(account, name=name)
        found = keys.find(account, name)
        assert found is not None
    other, _ = keys.issue(account, name="other")
    with pytest.raises(keys.KeyNameTaken):
        keys.rename(other, NFD)


def test_a_key_that_was_named_before_names_were_tidied_is_found_by_that_name(account: Account) -> None:
    key, _ = keys.issue(account, name="old")
    ApiKey.objects.filter(pk=key.pk).update(name=NFD)
    assert keys.find(account, NFD) == key


@pytest.mark.parametrize("name", BLANKS)
def test_blanks_are_ordinary_spaces(account: Account, name: str) -> None:
    assert keys.issue(account, name=name)[0].name == "A B"
    assert open_account(name).name == "A B"
    assert Account.objects.named(name).name == "A B"


@pytest.mark.parametrize("name", WRITTEN)
def test_every_script_and_emoji_is_taken(account: Account, name: str) -> None:
    assert keys.issue(account, name=name)[0].name == unicodedata.normalize("NFC", name)
    assert open_account(name).name == unicodedata.normalize("NFC", name)


@pytest.mark.parametrize("name", NOT_PRINTABLE)
def test_invisible_characters_are_refused(account: Account, name: str) -> None:
    with pytest.raises(keys.InvalidKeyName, match="1 to 200 printable characters"):
        keys.issue(account, name=name)
    with pytest.raises(ValidationError, match="Printable characters only"):
        open_account(name)


def test_a_name_is_measured_as_it_is_kept(account: Account) -> None:
    grows = "\N{DEVANAGARI LETTER QA}" * 101  # two characters each in NFC
    with pytest.raises(keys.InvalidKeyName):
        keys.issue(account, name=grows)
    with pytest.raises(ValidationError, match="200"):
        open_account(grows)
    assert open_account("e\u0301" * 200).name == "é" * 200


@pytest.mark.parametrize("name", ["sample data", "SAMPLE DATA", "Sample\u00a0data"])
def test_an_accounts_name_is_unique_without_case(name: str) -> None:
    open_account("Sample data")
    with pytest.raises(ValidationError, match="Account with this Name already exists"):
        open_account(name)


def test_two_accounts_may_not_differ_only_in_the_encoding_of_an_accent() -> None:
    open_account("Zoe\u0308")
    with pytest.raises(ValidationError, match="already exists"):
        open_account("Zo\u00eb")
    assert Account.objects.named("Zoe\u0308") == Account.objects.named("Zo\u00eb")


def test_two_accounts_may_not_differ_only_in_the_case_of_an_accented_letter() -> None:
    open_account("ZO\u00cb")
    with pytest.raises(ValidationError, match="already exists"):
        open_account("zo\u00eb")


def test_accounts_that_looked_alike_before_can_still_be_changed() -> None:
    old = new_account("Sample data")
    other = new_account("other")
    Account.objects.filter(pk=other.pk).update(name="sample  data")
    User.objects.create_superuser("boss@staff.example")
    browser = Client()
    browser.force_login(User.objects.get(email="boss@staff.example"))
    formset = {"membership_set-TOTAL_FORMS": "0", "membership_set-INITIAL_FORMS": "0"}
    page = f"/admin/accounts/account/{other.pk}/change/"
    fields = {"name": "sample  data", "currency": "EUR", "alias_limit": "7"}
    assert browser.post(page, fields | formset).status_code == 302
    other.refresh_from_db()
    assert (other.name, other.alias_limit) == ("sample  data", 7)
    assert Account.objects.named("sample  data") == other
    assert Account.objects.named("Sample data") == old
    response = browser.post(page, fields | formset | {"name": "SAMPLE DATA"})
    assert "Account with this Name already exists." in response.text
