"""Signs people in by OpenID Connect: asks the identity provider of OIDC_ISSUER, and checks what it answers.

allauth keeps the state of a sign-in, with PKCE. It sends no nonce, and trusts TLS instead of the ID token's signature.
Both are checked here.
"""

import json
import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import jwt
import requests
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from allauth.socialaccount.internal import statekit
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse
from urllib3.exceptions import HTTPError

from .models import User

KIND = "openid_connect"  # allauth's name of the protocol
TIMEOUT = 5.0  # seconds to connect, and between two pieces of an answer
LONGEST_ANSWER = 1024 * 1024
LONGEST_SUBJECT = 191  # of allauth's column
SKEW = 60  # seconds by which the provider's clock may differ
# A symmetric algorithm is missing on purpose: anyone who knows the public key could sign with it.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
CLAIMS = ("iss", "sub", "aud", "exp", "iat")
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# Codes of RFC 6749 that may be logged. Anything else that a provider sends is not.
KNOWN_ERRORS = frozenset(
    {
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "unauthorized_client",
        "unsupported_grant_type",
    }
)
TRY_AGAIN = "Sign in again to get a new one."


class SignInFailed(Exception):
    """A sign-in ends here. The message is for the page, `reason` for the log; neither quotes the provider.

    `person` is whom the sign-in was for, if that is known.
    """

    def __init__(self, words: str, *, status: int, reason: str, person: User | None = None) -> None:
        super().__init__(words)
        self.status, self.reason, self.person = status, reason, person


class BadAnswer(Exception):
    """The identity provider cannot be reached or answers something unusable; the message is for the log."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Holds what the provider has signed about a person. `email` is empty unless the provider has verified it.

    `groups` is None if the provider has left them out because they are too many for a token.
    """

    issuer: str
    subject: str
    email: str
    groups: frozenset[str] | None


def is_configured() -> bool:
    """Tells whether people can sign in with an identity provider."""
    return bool(settings.OIDC_ISSUER)


class ProviderSession(requests.Session):
    """Sends requests to the identity provider: with a time-out, and without redirects and the environment's proxies."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False

    def request(self, *args: Any, **options: Any) -> requests.Response:
        return super().request(*args, **options | {"timeout": TIMEOUT, "allow_redirects": False, "stream": True})

    def fetch(self, method: str, address: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """Returns the status and the JSON object of an answer. Raises BadAnswer."""
        host = urlsplit(address).hostname
        try:
            with self.request(method, address, **options) as answer:
                body = answer.raw.read(LONGEST_ANSWER + 1, decode_content=True)
                found = json.loads(body) if len(body) <= LONGEST_ANSWER else None
        except (requests.RequestException, HTTPError, OSError) as error:
            raise BadAnswer(f"{host} cannot be reached: {type(error).__name__}") from None
        except ValueError:
            raise BadAnswer(f"{host} answers {answer.status_code} without JSON") from None
        if not isinstance(found, dict):
            raise BadAnswer(f"{host} answers {answer.status_code} without a JSON object")
        return answer.status_code, found


class SocialAccountAdapter(DefaultSocialAccountAdapter):
    """Takes the one provider from the settings, so that the client secret is never in the database."""

    def list_apps(
        self, _request: HttpRequest, provider: str | None = None, client_id: str | None = None
    ) -> list[SocialApp]:
        app = SocialApp(
            provider=KIND,
            provider_id=settings.OIDC_ISSUER,
            name=settings.OIDC_NAME,
            client_id=settings.OIDC_CLIENT_ID,
            secret=settings.OIDC_CLIENT_SECRET,
            settings={"server_url": f"{settings.OIDC_ISSUER.rstrip('/')}/.well-known/openid-configuration"},
        )
        is_meant = provider in (None, KIND, app.provider_id) and client_id in (None, app.client_id)
        return [app] if is_configured() and is_meant else []

    def get_requests_session(self) -> ProviderSession:
        return ProviderSession()


class Endpoints(OpenIDConnectOAuth2Adapter):
    """Reads the provider's addresses from its discovery document."""

    @property
    def openid_config(self) -> dict[str, Any]:
        """Returns the checked document. Raises BadAnswer."""
        if not hasattr(self, "_openid_config"):
            provider = self.get_provider()
            with ProviderSession() as session:
                status, found = session.fetch("GET", provider.server_url)
            if status != 200 or found.get("issuer") != settings.OIDC_ISSUER:
                raise BadAnswer(f"the discovery document ({status}) is not for OIDC_ISSUER")
            for name in ENDPOINTS:
                _require_address(found, name)
            self._openid_config = found
        return self._openid_config

    @property
    def basic_auth(self) -> bool:
        return "client_secret_post" not in self.openid_config.get("token_endpoint_auth_methods_supported", [])

    def get_callback_url(self, _request: HttpRequest, _app: SocialApp) -> str:
        # PUBLIC_URL, because a Host header could name another server.
        return f"{settings.PUBLIC_URL}{reverse('single-sign-on-callback')}"


class Provider(OpenIDConnectProvider):
    """Sends people to the identity provider with PKCE and a nonce, and redeems the code that they bring back."""

    oauth2_adapter_class = Endpoints
    pkce_enabled_default = True

    def redirect(
        self, request: HttpRequest, process: str, next_url: str | None = None, data: Any = None, **options: Any
    ) -> HttpResponseBase:
        nonce = secrets.token_urlsafe(32)
        auth_params = options.pop("auth_params", {}) | {"nonce": nonce}
        return super().redirect(
            request, process, next_url, data, auth_params=auth_params, scope=self.get_scope(), nonce=nonce, **options
        )

    def redeem(self, request: HttpRequest, code: str, state: dict[str, Any]) -> Identity:
        """Exchanges the code for tokens, and returns what they say. Raises BadAnswer, SignInFailed."""
        endpoints = self.get_oauth2_adapter(request)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": endpoints.get_callback_url(request, self.app),
            "code_verifier": state["pkce_code_verifier"],
        }
        login = (self.app.client_id, self.app.secret)
        if endpoints.basic_auth:
            options: dict[str, Any] = {"auth": tuple(quote(each, safe="") for each in login)}  # RFC 6749, 2.3.1
        else:
            options = {}
            form |= {"client_id": login[0], "client_secret": login[1]}
        config = endpoints.openid_config
        with ProviderSession() as session:
            status, tokens = session.fetch("POST", config["token_endpoint"], data=form, **options)
            if status != 200:
                raise _refused_code(status, tokens)
            claims = self._verified(session, config, tokens.get("id_token"), state["nonce"])
            return self._identity(claims | self._more(session, config, tokens, claims))

    def _verified(self, session: ProviderSession, config: dict[str, Any], token: object, nonce: str) -> dict[str, Any]:
        """Returns the claims of an ID token that the provider has signed for this sign-in."""
        if not isinstance(token, str):
            raise BadAnswer("the answer has no ID token")
        status, keys = session.fetch("GET", config["jwks_uri"])
        if status != 200:
            raise BadAnswer(f"the keys answer {status}")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                _key_of(token, keys),
                algorithms=ALGORITHMS,
                audience=self.app.client_id,
                issuer=settings.OIDC_ISSUER,
                leeway=SKEW,
                options={"require": list(CLAIMS)},
            )
        except jwt.PyJWTError as error:
            raise BadAnswer(f"the ID token is not valid: {type(error).__name__}") from None
        if claims.get("azp", self.app.client_id) != self.app.client_id:
            raise BadAnswer("the ID token was issued to another client")
        if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise SignInFailed(
                f"The answer belongs to another sign-in. {TRY_AGAIN}", status=400, reason="the nonce is another one"
            )
        if not claims["sub"] or len(claims["sub"]) > LONGEST_SUBJECT:
            raise BadAnswer(f"the subject has no or more than {LONGEST_SUBJECT} characters")
        return claims

    def _more(
        self, session: ProviderSession, config: dict[str, Any], tokens: dict[str, Any], claims: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns what only the provider's userinfo says. Some providers keep ID tokens short."""
        wanted = {"email", *([settings.OIDC_GROUPS_CLAIM] if settings.OIDC_GROUPS else [])}
        if wanted <= claims.keys() or "userinfo_endpoint" not in config or "access_token" not in tokens:
            return {}
        _require_address(config, "userinfo_endpoint")
        headers = {"Authorization": f"Bearer {tokens['access_token']}"}
        status, found = session.fetch("GET", config["userinfo_endpoint"], headers=headers)
        if status != 200 or found.get("sub") != claims["sub"]:
            raise BadAnswer(f"the userinfo ({status}) is not about the person of the ID token")
        return {name: value for name, value in found.items() if name not in claims}

    def _identity(self, claims: dict[str, Any]) -> Identity:
        # Microsoft Entra sends `xms_edov` instead of `email_verified`.
        is_verified = any(claims.get(name) in (True, "true", "1") for name in ("email_verified", "xms_edov"))
        email = claims.get("email")
        groups = claims.get(settings.OIDC_GROUPS_CLAIM, [])
        found = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        left_out = claims.get("_claim_names")
        return Identity(
            issuer=settings.OIDC_ISSUER,
            subject=claims["sub"],
            email=email.strip().lower() if is_verified and isinstance(email, str) else "",
            groups=None
            if isinstance(left_out, dict) and settings.OIDC_GROUPS_CLAIM in left_out
            else frozenset(each for each in found if isinstance(each, str)),
        )


def send_to_provider(request: HttpRequest, next_url: str) -> HttpResponseBase:
    """Redirects a browser to the provider. Raises SignInFailed."""
    # Somebody who is signed in must prove again that it is them.
    again = {"prompt": "login"} if request.user.is_authenticated else {}
    try:
        return _provider(request).redirect(request, "login", next_url or None, auth_params=again)
    except BadAnswer as fault:
        raise _unusable(fault) from None


def identify(request: HttpRequest) -> tuple[Identity, str]:
    """Returns whom the provider has sent back, and the page that they asked for. Raises SignInFailed."""
    provider = _provider(request)
    found = statekit.unstash_state(request, provider_id=provider.sub_id, state_id=request.GET.get("state", ""))
    if found is None or not {"nonce", "pkce_code_verifier"} <= found.keys():
        raise SignInFailed(
            f"This sign-in is over ten minutes old, or was begun in another browser. {TRY_AGAIN}",
            status=400,
            reason="the state is unknown",
        )
    if request.GET.get("error") == "access_denied":
        raise SignInFailed(
            "The sign-in was cancelled, or the identity provider does not let you in.",
            status=403,
            reason="access_denied",
        )
    code = request.GET.get("code", "")
    if "error" in request.GET or not code:
        raise _unusable(BadAnswer("the callback has no code"))
    try:
        return provider.redeem(request, code, found), str(found.get("next") or "")
    except BadAnswer as fault:
        raise _unusable(fault) from None


def _provider(request: HttpRequest) -> Provider:
    provider: Provider = get_adapter(request).get_provider(request, provider=KIND)
    return provider


def _key_of(token: str, keys: dict[str, Any]) -> Any:
    """Returns the provider's key that the token names, or its only key if it names none. Raises PyJWTError."""
    found = keys.get("keys")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise jwt.InvalidKeyError
    every = jwt.PyJWKSet.from_dict(keys).keys
    usable = [key for key in every if key.public_key_use in (None, "sig") and key.key_type != "oct"]
    name = jwt.get_unverified_header(token).get("kid")
    named = [key for key in usable if name is None or key.key_id == name]
    if len(named) != 1:
        raise jwt.InvalidKeyError
    return named[0]


def _require_address(config: dict[str, Any], name: str) -> None:
    """Raises BadAnswer unless the document has the address, with TLS if the issuer has it."""
    found = config.get(name)
    schemes = {"https", urlsplit(settings.OIDC_ISSUER).scheme}
    try:
        is_usable = isinstance(found, str) and urlsplit(found).scheme in schemes and bool(urlsplit(found).hostname)
    except ValueError:
        is_usable = False
    if not is_usable:
        raise BadAnswer(f"the discovery document has no usable {name}")


def _refused_code(status: int, answer: dict[str, Any]) -> Exception:
    error = answer.get("error")
    if error == "invalid_grant":
        return SignInFailed(
            f"The code of this sign-in has expired or was used before. {TRY_AGAIN}", status=400, reason="invalid_grant"
        )
    return BadAnswer(f"the token address answers {status} {error if error in KNOWN_ERRORS else ''}".strip())


def _unusable(fault: BadAnswer) -> SignInFailed:
    return SignInFailed(
        "The identity provider could not be asked, or its answer cannot be used. Try again later. If that does not "
        "help, tell the operator of this gateway.",
        status=502,
        reason=str(fault),
    )
