"""Encrypts secrets that the gateway must be able to read again, under keys that are derived from SECRET_KEY.

While SECRET_KEY is rotated, SECRET_KEY_FALLBACKS still decrypt what was encrypted before.
"""

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

PURPOSE = b"gateway.encryption"  # separates these keys from all others that are derived from SECRET_KEY


class CannotDecrypt(ValueError):
    """The text was encrypted under a key that is neither SECRET_KEY nor one of SECRET_KEY_FALLBACKS."""


def encrypt(text: str) -> str:
    """Encrypts a text under SECRET_KEY."""
    return _fernets(settings.SECRET_KEY).encrypt(text.encode()).decode()


def decrypt(text: str) -> str:
    """Returns the text that was encrypted. Raises CannotDecrypt."""
    try:
        return _fernets(settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS).decrypt(text.encode()).decode()
    except InvalidToken:
        raise CannotDecrypt("The secret was encrypted under a key that the gateway does not have.") from None


def renewed(text: str) -> str | None:
    """Returns the text encrypted anew under SECRET_KEY if one of SECRET_KEY_FALLBACKS encrypted it, otherwise None.

    A text that none of the keys decrypts cannot be renewed, and stays as it is.
    """
    try:
        _fernets(settings.SECRET_KEY).decrypt(text.encode())
    except InvalidToken:
        try:
            return encrypt(decrypt(text))
        except CannotDecrypt:
            return None
    return None


@lru_cache(maxsize=4)
def _fernets(*keys: str) -> MultiFernet:
    return MultiFernet([Fernet(base64.urlsafe_b64encode(_derived(key))) for key in keys])


def _derived(key: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=PURPOSE).derive(key.encode())
