"""Secrets are encrypted under SECRET_KEY, and can be read while the key is rotated."""

import pytest
from pytest_django import Settings

from gateway.encryption import CannotDecrypt, decrypt, encrypt, renewed


def test_a_text_can_be_read_again_and_is_not_stored_as_it_is() -> None:
    encrypted = encrypt("whsec_é")
    assert decrypt(encrypted) == "whsec_é"
    assert "whsec" not in encrypted
    assert encrypt("whsec_é") != encrypted


def test_a_fallback_of_the_secret_key_still_decrypts(settings: Settings) -> None:
    settings.SECRET_KEY = "first"
    encrypted = encrypt("text")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "second", ["first"]
    assert decrypt(encrypted) == "text"
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(CannotDecrypt):
        decrypt(encrypted)


@pytest.mark.parametrize("damaged", ["", "text", "gAAAAA", "é"])
def test_a_damaged_text_is_refused(damaged: str) -> None:
    with pytest.raises(CannotDecrypt):
        decrypt(damaged)


def test_a_text_of_an_earlier_key_is_renewed_so_that_the_key_can_go(settings: Settings) -> None:
    settings.SECRET_KEY = "first"
    encrypted = encrypt("text")
    assert renewed(encrypted) is None
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "second", ["first"]
    anew = renewed(encrypted)
    assert anew is not None
    settings.SECRET_KEY_FALLBACKS = []
    assert decrypt(anew) == "text"
    assert renewed(anew) is None
    assert renewed(encrypted) is None
