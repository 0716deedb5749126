"""Serves `/v1/key`, `/v1/credits`, `/v1/keys` and `/v1/policies` (docs/management.md)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Sum
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import keys, rate_windows
from accounts.expiry import ExpiryField
from accounts.keys import AnyKeyAuthentication, Caller, ManagementAuthentication, Operator, caller_of_request
from accounts.models import Account, ApiKey, KeyKind
from accounts.policies import policies_of_key
from catalogue.policy_form import CheckedPolicy, checked_policy
from catalogue.routing import snapshot
from gateway.edge import listing
from gateway.edge.control_view import ControlView
from gateway.edge.rfc3339 import to_text
from gateway.edge.strict_fields import ChoiceField, FlagField, ListField, ObjectField, TextField, WholeNumberField
from gateway.edge.tables import Table
from gateway.errors import ApiKeyExpired, ApiKeyNotRegistered, InvalidRequest, KeyExists, NotFound
from gateway.money import plain

from . import key_representations as representations
from .models import LedgerEntry, Wallet
from .policies import Holder, set_policy, set_tags

Json = dict[str, Any]
NO_SUCH_KEY = "This account has no such key."
KINDS = [KeyKind.INFERENCE.value, KeyKind.MANAGEMENT.value]


class NewKey(Table):
    """Reads the body of a new key."""

    name = TextField()
    kind = ChoiceField(KINDS, default=KeyKind.INFERENCE.value)
    expires = ExpiryField(required=False)
    policy = ObjectField(required=False)  # its fields are checked by `checked_policy_of`
    tags = ListField(required=False)


class KeyChanges(Table):
    """Reads the body of a change of a key. Absent fields stay as they are."""

    name = TextField(required=False)
    expires = ExpiryField(required=False)
    disabled = FlagField(required=False)
    policy = ObjectField(required=False)  # its fields are checked by `checked_policy_of`
    tags = ListField(required=False)


class Rotation(Table):
    """Reads the body of a rotation."""

    overlap_hours = WholeNumberField(minimum=0, maximum=keys.LONGEST_OVERLAP_HOURS, default=24)


class CurrentKey(ControlView):
    """Shows the calling key, of any kind."""

    doing = "reading the key"
    authentication_classes = (AnyKeyAuthentication,)

    def get(self, request: Request) -> Response:
        caller: Caller | Operator = request.user  # type: ignore[assignment]  # the authentication sets it
        return Response(_operator_key(caller) if isinstance(caller, Operator) else _account_key(caller))


class Credits(ControlView):
    """Shows an account's balance, and all that was ever credited and used."""

    doing = "reading the balance"

    def get(self, request: Request) -> Response:
        caller = caller_of_request(request)
        wallet = Wallet.objects.get(pk=caller.account_id)
        credit = LedgerEntry.objects.filter(account_id=caller.account_id).exclude(reference=None)
        total = credit.aggregate(total=Sum("amount", default=Decimal(0)))["total"]
        used = total - wallet.balance
        return Response(
            {
                "balance": plain(wallet.balance),
                "currency": caller.currency,
                "total_credits": plain(total),
                "total_usage": plain(used),
                "data": {"total_credits": float(total), "total_usage": float(used)},
            }
        )


class Keys(ControlView):
    """Lists the account's keys that are not deleted, newest first, and creates keys."""

    doing = "listing or creating keys"
    authentication_classes = (ManagementAuthentication,)

    def get(self, request: Request) -> Response:
        account_id, query = caller_of_request(request).account_id, listing.query_of(request)
        salt = f"billing.keys/{account_id.hex}"
        rows = _live(account_id).order_by("-pk")
        position = listing.position_of(query, salt)
        if position is not None:
            rows = rows.filter(pk__lt=UUID(hex=position))
        found = list(rows[: query["limit"] + 1])
        return listing.page(found, query, salt, position=lambda key: key.pk.hex, shown=_shown)

    def post(self, request: Request) -> Response:
        fields = fields_of(NewKey, self.json_body(request))
        account = Account.objects.get(pk=caller_of_request(request).account_id)
        policy = None if fields.get("policy") is None else checked_policy_of(fields["policy"], "policy")
        with transaction.atomic(), key_faults():
            kind, lifetime = KeyKind(fields["kind"]), fields.get("expires", keys.DEFAULT_LIFETIME)
            key, token = keys.issue(account, name=fields["name"], kind=kind, lifetime=lifetime)
            if "tags" in fields:
                set_tags(key, fields["tags"])
            if policy is not None:
                set_policy(Holder.of_key(key), policy.rules)
        return Response(with_warnings({**shown_key(key), "key": token}, policy), status=201)


class OneKey(ControlView):
    """Shows, changes and deletes a key."""

    doing = "reading or changing the key"
    authentication_classes = (ManagementAuthentication,)

    def get(self, request: Request, key_id: str) -> Response:
        return Response(shown_key(_found(request, key_id)))

    def patch(self, request: Request, key_id: str) -> Response:
        key, body = _found(request, key_id), self.json_body(request)
        fields = fields_of(KeyChanges, body)
        if not fields:
            raise InvalidRequest("Send at least one of `name`, `expires`, `disabled`, `policy` and `tags`.")
        policy = None if "policy" not in fields else checked_policy_of(fields["policy"], "policy")
        changes = {"name": fields["name"]} if "name" in fields else {}
        changes |= {"expires_at": fields["expires"]} if "expires" in fields else {}
        with transaction.atomic(), key_faults():
            if not ApiKey.objects.select_for_update(no_key=True).filter(pk=key.pk, deleted_at=None).exists():
                raise NotFound(NO_SUCH_KEY)  # it was deleted meanwhile
            keys.change(key, **changes)
            if "disabled" in fields:
                keys.set_disabled(key, fields["disabled"])
            if "tags" in fields:
                set_tags(key, fields["tags"])
            if policy is not None:
                set_policy(Holder.of_key(key), policy.rules)
        return Response(with_warnings(shown_key(key), policy))

    def delete(self, request: Request, key_id: str) -> Response:
        keys.delete(_found(request, key_id))
        return Response(status=204)


class RotatedKey(ControlView):
    """Gives a key a new token; the old one works until the overlap ends."""

    doing = "rotating the key"
    authentication_classes = (ManagementAuthentication,)

    def post(self, request: Request, key_id: str) -> Response:
        key, body = _found(request, key_id), self.json_body(request)
        overlap = timedelta(hours=fields_of(Rotation, body)["overlap_hours"])
        try:
            token = keys.rotate(key, overlap)
        except ApiKeyNotRegistered:
            raise NotFound(NO_SUCH_KEY) from None  # it was deleted meanwhile
        except ApiKeyExpired:  # of the key in the path, not of the caller's
            raise InvalidRequest("The key has expired. Create a new one.") from None
        return Response({**shown_key(key), "key": token}, status=201)


class Policies(ControlView):
    """Shows and replaces the policy of the account, of new keys (`default`), or of a tag (`tag:NAME=VALUE`)."""

    doing = "reading or setting the policy"
    authentication_classes = (ManagementAuthentication,)

    def get(self, request: Request, holder: str) -> Response:
        return Response(_policy(self._holder(request, holder)))

    def put(self, request: Request, holder: str) -> Response:
        found = self._holder(request, holder)
        checked = checked_policy_of(self.json_body(request))
        set_policy(found, checked.rules)
        return Response(with_warnings(_policy(found), checked))

    @staticmethod
    def _holder(request: Request, holder: str) -> Holder:
        account = Account.objects.get(pk=caller_of_request(request).account_id)
        if holder == "account":
            return Holder.of_account(account)
        if holder == "default":
            return Holder.of_default(account)
        level, _, tag = holder.partition(":")
        if level != "tag":
            raise NotFound("There are policies of `account`, `default` and `tag:NAME=VALUE`.")
        return Holder.of_tag(account, tag)


def _account_key(caller: Caller) -> Json:
    today = representations.today()
    key = _shown_with().get(pk=caller.key_id)
    shown = representations.key_of(key, _usage(caller.account_id, key.pk), today)
    budgets = representations.budgets_of_key(key, today)
    budget = representations.tightest(budgets)
    own = rate_windows.rate_limits_of(key.rpm, key.tpm)
    bounds = rate_windows.rate_bounds(key.pk, key.account_id, own, policies_of_key(key.pk))
    return {
        **{name: shown[name] for name in ("id", "kind", "name", "tags")},
        "account": representations.account_of(key.account),
        **{name: shown[name] for name in ("created_at", "expires_at", "policy")},
        "budget": budget,
        "budgets": budgets,
        "rate_limits": rate_windows.left_of(bounds),
        "usage": shown["usage"],
        "data": representations.of_openrouter(key, budget, shown["usage"]),
    }


def _operator_key(operator: Operator) -> Json:
    key = operator.key
    return {
        "id": str(key.pk),
        "kind": KeyKind.OPERATOR.value,
        "name": key.name,
        "account": None,
        "created_at": to_text(key.created_at),
        "expires_at": representations.text_or_none(key.expires_at),
    }


def _live(account_id: UUID) -> Any:
    return _shown_with().filter(account_id=account_id, deleted_at=None)


def _shown_with() -> Any:
    """Selects keys, deleted ones too, together with what is shown of them."""
    return ApiKey.objects.select_related("account", "created_by", "policy", "policy__spending")


def _found(request: Request, key_id: str) -> ApiKey:
    """Returns a key of the caller's account. Raises NotFound."""
    try:
        found: ApiKey | None = _live(caller_of_request(request).account_id).filter(pk=UUID(key_id)).first()
    except ValueError:
        found = None
    if found is None:
        raise NotFound(NO_SUCH_KEY)
    return found


def _shown(found: Sequence[ApiKey]) -> list[Json]:
    if not found:
        return []
    today, used = representations.today(), representations.usage_of_keys(found[0].account_id, representations.today())
    return [representations.key_of(key, used.get(key.pk) or representations.no_usage(), today) for key in found]


def shown_key(key: ApiKey) -> Json:
    """Reads a key again, with its policy, and returns what is shown of it, even if it was deleted meanwhile."""
    key = _shown_with().get(pk=key.pk)
    return representations.key_of(key, _usage(key.account_id, key.pk), representations.today())


def _usage(account_id: UUID, key_id: UUID) -> Json:
    used = representations.usage_of_keys(account_id, representations.today(), key_id)
    return used.get(key_id) or representations.no_usage()


def _policy(holder: Holder) -> Json:
    return {"object": "policy", "level": holder.level, "tag": holder.tag or None, "policy": holder.rules}


def fields_of(form: type[Table], body: Json) -> Json:
    """Returns the checked fields of a body. Raises InvalidRequest and DRF's ValidationError."""
    checked = form(data=body)
    checked.is_valid(raise_exception=True)
    found: Json = checked.validated_data
    return found


def checked_policy_of(rules: Any, path: str = "") -> CheckedPolicy:
    """Checks a policy against today's catalogue. Raises InvalidRequest, which names the field within `path`."""
    try:
        return checked_policy(snapshot.current(), rules)
    except InvalidRequest as error:
        raise (error.within(f"{path}.") if path else error) from None


def with_warnings(body: Json, checked: CheckedPolicy | None) -> Json:
    """Adds the warnings about a policy to an answer, if there are any."""
    return body if checked is None or not checked.warnings else body | {"warnings": checked.warnings}


@contextmanager
def key_faults(param: str = "name") -> Iterator[None]:
    """Turns faults of a key's name and expiry into the API's errors. A fault of the name is reported for `param`."""
    try:
        yield
    except keys.KeyNameTaken as error:
        raise KeyExists(str(error), param=param) from None
    except keys.InvalidKeyName as error:
        raise InvalidRequest(str(error), param=param) from None
    except ApiKeyExpired:  # of the key in the path, not of the caller's
        raise InvalidRequest("The key has expired, and its proof has been removed.", param="expires") from None
