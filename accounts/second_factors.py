"""Adapts allauth's second factors: secrets are encrypted, and REQUIRE_SECOND_FACTOR says who needs one."""

from collections.abc import Callable
from typing import Any

from allauth.account.internal.flows.login import get_authentication_records
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.stages import AuthenticateStage
from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect

from gateway import encryption

from .models import User

NEEDED = "Add a second factor to continue: an authenticator app or a passkey."
KINDS = {"totp": "authenticator app", "webauthn": "passkey", "recovery_codes": "recovery codes"}
# The pages that a person without a required second factor can reach, by the names of URLs.
OPEN_PAGES = frozenset(
    {
        "account_login",
        "login",
        "logout",
        "single-sign-on",
        "single-sign-on-callback",
        "mfa_index",
        "mfa_activate_totp",
        "mfa_add_webauthn",
        "mfa_view_recovery_codes",
        "account_reauthenticate",
        "mfa_reauthenticate",
        "mfa_reauthenticate_webauthn",
    }
)


def has_second_factor(person: User) -> bool:
    """Tells whether signing in takes more than a password. Recovery codes alone do not count."""
    return Authenticator.objects.filter(
        user=person, type__in=(Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
    ).exists()


def must_have_second_factor(person: User) -> bool:
    """Tells whether REQUIRE_SECOND_FACTOR applies to the person."""
    wanted = settings.REQUIRE_SECOND_FACTOR
    return wanted == "everyone" or (wanted == "staff" and (person.is_staff or person.is_superuser))


def lacks_required_factor(request: HttpRequest, person: User) -> bool:
    """Tells whether the person needs a second factor and has none; the identity provider may have asked for one."""
    return (
        must_have_second_factor(person)
        and not (settings.OIDC_IS_SECOND_FACTOR and came_by_single_sign_on(request, person))
        and not has_second_factor(person)
    )


def came_by_single_sign_on(request: HttpRequest, person: User) -> bool:
    """Tells whether the identity provider has vouched for the person in this session."""
    return any(record["method"] == "socialaccount" for record in get_authentication_records(request, person))


class SecondFactorStage(AuthenticateStage):
    """Asks for a second factor while somebody signs in. After single sign-on it does so only if one is required."""

    def _should_handle(self, request: HttpRequest) -> bool:
        person = self.login.user
        if isinstance(person, User) and came_by_single_sign_on(request, person):
            is_asked = not settings.OIDC_IS_SECOND_FACTOR and must_have_second_factor(person)
            return is_asked and super()._should_handle(request)
        return super()._should_handle(request)


def remove_all(person: User) -> list[str]:
    """Removes every second factor of the person, and returns their kinds."""
    factors = Authenticator.objects.filter(user=person).order_by("pk")
    removed = [KINDS[factor.type] for factor in factors]
    factors.delete()
    return removed


def renew_secrets() -> int:
    """Encrypts secrets anew that an earlier SECRET_KEY encrypted, so that it can go; returns how many."""
    count = 0
    for pk in Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN).values_list("pk", flat=True):
        with transaction.atomic():
            factor = Authenticator.objects.select_for_update().filter(pk=pk).first()
            for name in {"secret", "seed"} & {*(factor.data if factor is not None else ())}:
                renewed = encryption.renewed(factor.data[name])
                if renewed is not None:
                    factor.data[name] = renewed
                    factor.save(update_fields=["data"])
                    count += 1
    return count


class SecondFactorMiddleware:
    """Leads people who lack a required second factor to the page where they add one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, _view: object, _args: object, _kwargs: object
    ) -> HttpResponseBase | None:
        if not settings.REQUIRE_SECOND_FACTOR:
            return None
        match = request.resolver_match
        if match is not None and match.url_name in OPEN_PAGES:
            return None
        if not isinstance(request.user, User) or not lacks_required_factor(request, request.user):
            return None
        messages.warning(request, NEEDED)
        return redirect("mfa_index")


class SecondFactorAdapter(DefaultMFAAdapter):
    """Changes what allauth does with second factors."""

    def encrypt(self, text: str) -> str:
        return encryption.encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        return encryption.decrypt(encrypted_text)

    def _get_site_name(self) -> str:
        return settings.MFA_TOTP_ISSUER

    def generate_authenticator_name(self, user: Any, type: Any) -> str:  # allauth names it
        return f"Passkey {Authenticator.objects.filter(user=user, type=type).count() + 1}"
