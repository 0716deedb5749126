"""Lists every page of the resolver, with one account's objects in its address, so that a new page is included."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from allauth.mfa.models import Authenticator
from django.contrib.auth.tokens import default_token_generator
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from accounts import invitations
from accounts.models import Account, ApiKey, Invitation, Membership, User, Webhook
from aliases import changes
from aliases.models import Alias
from aliases.targets import Target
from billing.models import Generation, RequestFailure
from gateway.edge.health import LIVE_PATHS, READY_PATH
from tests.billing.records import fail, key_of, open_for, serve
from tests.dashboard.people import joined
from tests.proof.log import logged

OWNER, MEMBER, INVITED = "owner@acme.example", "member@acme.example", "invited@elsewhere.example"
HOLDER = "holder@elsewhere.example"  # has the passkey, and no account
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
# The documents are tested in tests/reference, the public parts of the log in tests/proof.
NO_PAGES = ("^(?:api/)?v1/", "log/", "docs", "llms.txt", r"^openapi\.json/?$", *LIVE_PATHS, READY_PATH)


class Page(NamedTuple):
    """Holds the page's name in the resolver and its address."""

    name: str
    address: str


@dataclass(frozen=True)
class Acme:
    """Holds an account that has one object of each kind."""

    account: Account
    owner: Membership
    member: Membership
    key: ApiKey
    alias: Alias
    record: Generation
    failure: RequestFailure
    invitation: Invitation
    passkey: Authenticator
    webhook: Webhook

    @classmethod
    def open(cls) -> "Acme":
        """Opens the account with an owner, a member, and something in each of their lists."""
        account = open_for(MEMBER)
        owner = joined(account, OWNER, "owner")
        return cls(
            account=account,
            owner=owner,
            member=Membership.objects.get(user__email=MEMBER),
            key=key_of(account),
            alias=changes.create(account.pk, "fast", Target("sim", "demo/echo", "FRPAR")),
            record=logged(serve(account)),
            failure=fail(account),
            invitation=invitations.invite(account.pk, INVITED, "member", by=owner.user),
            passkey=Authenticator.objects.create(
                user=User.objects.create_user(HOLDER), type="webauthn", data={"name": "phone"}
            ),
            webhook=Webhook.objects.create(account=account, url="https://example.com/", events=["*"], secret=""),
        )

    def pages(self) -> list[Page]:
        """Returns every page of the dashboard."""
        return [Page(name, f"/{route % self._objects}") for name, route in dashboard()]

    @property
    def _objects(self) -> dict[str, Any]:
        """Returns the objects that a page's address may name.

        A KeyError here means that a new page names a new kind of object.
        """
        return {
            "key_id": self.key.pk,
            "membership_id": self.member.pk,
            "invitation_id": self.invitation.pk,
            "tag": "team=search",
            "webhook_id": self.webhook.pk,
            "alias_id": self.alias.pk,
            "canonical_id": "demo/echo",
            "generation_id": self.record.public_id,
            "request_id": self.failure.request_id,
            "signed": invitations.sign(self.invitation),
            "uidb64": urlsafe_base64_encode(force_bytes(self.owner.user.pk)),
            "pk": self.passkey.pk,
            "token": default_token_generator.make_token(self.owner.user),
        }


def dashboard() -> Iterator[tuple[str, str]]:
    """Returns the name of each page, and its route as a `%` format."""
    for pattern in get_resolver().url_patterns:
        if str(pattern.pattern).startswith("admin/") or str(pattern.pattern) in NO_PAGES:
            continue
        for page in _leaves(pattern):
            route = str(page.pattern)
            if route.startswith(("admin/", "docs/")) or route in NO_PAGES:
                continue
            assert page.name, f"{page.pattern} has no name"
            [(address, _)] = get_resolver().reverse_dict.getlist(page.name)[0][0]
            yield page.name, address


def _leaves(pattern: URLPattern | URLResolver) -> Iterator[URLPattern]:
    if isinstance(pattern, URLPattern):
        yield pattern
    else:
        for part in pattern.url_patterns:
            yield from _leaves(part)
