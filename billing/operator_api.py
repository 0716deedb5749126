"""Serves `/v1/operator/accounts`, with which the operator's own systems run accounts (docs/management.md)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson
from django.core.exceptions import ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import audit, keys, suspensions
from accounts.actions import Action
from accounts.audit import Subject
from accounts.keys import Operator, OperatorAuthentication
from accounts.members import locked_account
from accounts.models import Account, ApiKey, OperatorKey, OperatorRequest, Suspension
from catalogue.policy_form import CheckedPolicy
from gateway.edge import listing
from gateway.edge.control_view import ControlView
from gateway.edge.listing import ListQuery
from gateway.edge.rfc3339 import to_text
from gateway.edge.strict_fields import ChoiceField, FlagField, ObjectField, TextField
from gateway.edge.tables import AmountField, Table
from gateway.errors import AccountExists, IdempotencyKeyReused, InvalidRequest, NotFound, ReferenceConflict
from gateway.ids import generation_id
from gateway.money import plain

from .accounts import DEFAULT_CURRENCY, open_account, rate_warning
from .keys_api import NewKey, checked_policy_of, fields_of, key_faults, shown_key, with_warnings
from .ledger import credits as ledger
from .models import LedgerEntry, Wallet
from .policies import Holder, set_policy, set_tags
from .usage.spending import spending_by_account
from .usage.statistics import Days, Scope, Totals, totals

Json = dict[str, Any]
SPEND_DAYS = 30
KEPT_FOR = timedelta(hours=24)  # an `Idempotency-Key`
IDEMPOTENCY_KEY = "HTTP_IDEMPOTENCY_KEY"
SORTS = ("name", "balance", "spend")


class NewAccount(Table):
    """Reads the body of a new account."""

    name = TextField(validators=[ProhibitNullCharactersValidator()])  # PostgreSQL does not take them
    currency = TextField(default=DEFAULT_CURRENCY)
    credit = AmountField(required=False, above_zero=True)
    owner = TextField(required=False)
    policy = ObjectField(required=False)
    key = ObjectField(required=False)


class AccountChanges(Table):
    """Reads the body of a change of an account. Absent fields stay as they are."""

    name = TextField(required=False, validators=[ProhibitNullCharactersValidator()])
    policy = ObjectField(required=False)
    suspended = FlagField(required=False)
    suspended_reason = serializers.CharField(required=False, max_length=500)

    def validate(self, attrs: Json) -> Json:
        if attrs.get("suspended") and "suspended_reason" not in attrs:
            raise serializers.ValidationError({"suspended_reason": "is required to suspend an account."})
        if "suspended_reason" in attrs and not attrs.get("suspended"):
            raise serializers.ValidationError({"suspended_reason": "is only for an account that is suspended by this."})
        return attrs


class NewCredit(Table):
    """Reads the body of a credit or a correction."""

    amount = AmountField(may_be_negative=True)
    reference = TextField()
    reason = serializers.CharField(required=False, max_length=2000)
    correction = FlagField(default=False)


class AccountsQuery(ListQuery):
    """Reads the query of the list of accounts."""

    suspended = ChoiceField(["true", "false"], required=False)
    sort = ChoiceField(SORTS, default="name")


class Accounts(ControlView):
    """Lists accounts and opens new ones."""

    doing = "listing or opening accounts"
    authentication_classes = (OperatorAuthentication,)

    def get(self, request: Request) -> Response:
        query = listing.query_of(request, AccountsQuery)
        offset = listing.position_of(query, "billing.operator") or 0
        spent = spending_by_account(Days.until(timezone.now(), SPEND_DAYS))
        found = Account.objects.annotate(balance=F("wallet__balance"))
        if "suspended" in query:
            found = found.filter(suspended_at__isnull=query["suspended"] == "false")
        order: dict[str, Any] = {
            "name": lambda account: account.name,
            "balance": lambda account: account.balance,
            "spend": lambda account: -(spent.get(account.pk, Totals()).cost or 0),
        }
        rows = sorted(found, key=order[query["sort"]])[offset : offset + query["limit"] + 1]
        reasons = _reasons(rows)
        shown = [
            _shown(account, account.balance, spent.get(account.pk, Totals()), reasons.get(account.pk))
            for account in rows
        ]
        return listing.page(
            list(enumerate(rows, offset + 1)),
            query,
            "billing.operator",
            position=lambda row: row[0],
            shown=lambda page: shown[: len(page)],
        )

    def post(self, request: Request) -> Response:
        body, operator = self.json_body(request), _operator(request)
        fields = fields_of(NewAccount, body)
        policy = None if "policy" not in fields else checked_policy_of(fields["policy"], "policy")
        key_fields = None if "key" not in fields else _key_fields(fields["key"])
        repeated = _Repeated.of(request, operator, body)
        with transaction.atomic(), _account_faults():
            if repeated is not None and (first := repeated.first()) is not None:
                return Response(_opened(first.account, first.issued_key), status=201)
            account = open_account(
                fields["name"],
                currency=fields["currency"],
                credit=fields.get("credit"),
                owner_email=fields.get("owner"),
            )
            if policy is not None:
                set_policy(Holder.of_account(account), policy.rules)
            key, token, of_key = _issue(account, key_fields)
            if repeated is not None:
                repeated.note(account, key)
        answer = _opened(account, key, token)
        warnings = [*([warning] if (warning := rate_warning(account)) else []), *_warnings(policy), *_warnings(of_key)]
        return Response(answer | {"warnings": warnings} if warnings else answer, status=201)


class OneAccount(ControlView):
    """Shows and changes an account."""

    doing = "reading or changing the account"
    authentication_classes = (OperatorAuthentication,)

    def get(self, request: Request, account_id: str) -> Response:  # every operator key sees all
        return Response(shown_account(_found(account_id)))

    def patch(self, request: Request, account_id: str) -> Response:
        account, fields = _found(account_id), fields_of(AccountChanges, self.json_body(request))
        if not fields:
            raise InvalidRequest("Send at least one of `name`, `policy` and `suspended`.")
        policy = None if "policy" not in fields else checked_policy_of(fields["policy"], "policy")
        with transaction.atomic(), _account_faults():
            if fields.get("suspended") is False:
                _suspend(account, fields)  # first, since a suspended account's policy cannot be set
            if "name" in fields:
                _rename(account, fields["name"])
            if policy is not None:
                set_policy(Holder.of_account(account), policy.rules)
            if fields.get("suspended"):
                _suspend(account, fields)
        return Response(with_warnings(shown_account(_found(account_id)), policy))


class Credit(ControlView):
    """Books credit or a correction, once for each reference."""

    doing = "booking the credit"
    authentication_classes = (OperatorAuthentication,)

    def post(self, request: Request, account_id: str) -> Response:
        account, fields = _found(account_id), fields_of(NewCredit, self.json_body(request))
        book = ledger.correct if fields["correction"] else ledger.grant
        try:
            booked = book(account.pk, fields["amount"], fields["reference"], reason=fields.get("reason"))
        except ledger.InvalidAmount as error:
            raise InvalidRequest(str(error), param="amount") from None
        except ledger.InvalidReference as error:
            raise InvalidRequest(str(error), param="reference") from None
        except ledger.ReferenceConflict as error:
            raise ReferenceConflict(str(error)) from None
        entry = LedgerEntry.objects.get(account=account, reference=fields["reference"])
        return Response(shown_entry(entry), status=200 if booked.repeated else 201)


class _Repeated:
    """Finds and notes the account that a request with an `Idempotency-Key` has opened."""

    def __init__(self, operator: Operator, name: str, body: Json) -> None:
        self._key = operator.key
        self._name = sha256(name.encode()).digest()
        self._body = sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).digest()

    @classmethod
    def of(cls, request: Request, operator: Operator, body: Json) -> "_Repeated | None":
        name = request.META.get(IDEMPOTENCY_KEY)
        if name is None:
            return None
        if not 0 < len(name) <= 255 or not name.isascii() or not name.isprintable():
            raise InvalidRequest.of_field("Idempotency-Key", "must be 1 to 255 printable ASCII characters.")
        return cls(operator, name, body)

    def first(self) -> OperatorRequest | None:
        """Returns the earlier request, and makes requests at the same time wait. Raises IdempotencyKeyReused."""
        OperatorKey.objects.select_for_update(no_key=True).get(pk=self._key.pk)
        OperatorRequest.objects.filter(created_at__lt=timezone.now() - KEPT_FOR).delete()
        found = OperatorRequest.objects.filter(key=self._key, name_digest=self._name)
        first = found.select_related("account", "issued_key").first()
        if first is not None and bytes(first.body_digest) != self._body:
            raise IdempotencyKeyReused
        return first

    def note(self, account: Account, key: ApiKey | None) -> None:
        OperatorRequest.objects.create(
            key=self._key, name_digest=self._name, body_digest=self._body, account=account, issued_key=key
        )


def shown_account(account: Account) -> Json:
    """Returns an account as operators see it."""
    spent = totals(Scope(account.pk), Days.until(timezone.now(), SPEND_DAYS))
    balance = Wallet.objects.get(pk=account.pk).balance
    return _shown(account, balance, spent, _reasons([account]).get(account.pk))


def shown_entry(entry: LedgerEntry) -> Json:
    """Returns a ledger entry as the API shows it."""
    return {
        "object": "ledger_entry",
        "seq": entry.seq,
        "kind": entry.kind,
        "amount": plain(entry.amount),
        "balance_after": plain(entry.balance_after),
        "created_at": to_text(entry.created_at),
        "reference": entry.reference,
        "reason": entry.reason,
        "generation_id": None if entry.generation_id is None else generation_id(entry.generation_id),
    }


def _shown(account: Account, balance: Decimal, spent: Totals, reason: str | None) -> Json:
    return {
        "object": "account",
        "id": str(account.pk),
        "name": account.name,
        "currency": account.currency,
        "balance": plain(balance),
        "suspended": account.suspended_at is not None,
        "suspended_reason": reason,
        "created_at": to_text(account.created_at),
        "spend_30d": plain(spent.cost or Decimal(0)),
    }


def _opened(account: Account, key: ApiKey | None, token: str | None = None) -> Json:
    answer = shown_account(account)
    if key is not None:
        answer["key"] = shown_key(key) | ({} if token is None else {"key": token})
    return answer


def _reasons(accounts: Sequence[Account]) -> dict[UUID, str]:
    """Returns why each suspended account is suspended."""
    found = Suspension.objects.filter(account__in=accounts, ended_at=None)
    return dict(found.values_list("account_id", "reason"))


def _operator(request: Request) -> Operator:
    operator: Operator = request.user  # type: ignore[assignment]  # OperatorAuthentication sets it
    return operator


def _found(account_id: str) -> Account:
    try:
        found = Account.objects.filter(pk=UUID(account_id)).first()
    except ValueError:
        found = None
    if found is None:
        raise NotFound("There is no such account.")
    return found


def _key_fields(body: Json) -> Json:
    try:
        return fields_of(NewKey, body)
    except serializers.ValidationError as error:
        raise serializers.ValidationError({"key": error.detail}) from None


def _issue(account: Account, fields: Json | None) -> tuple[ApiKey | None, str | None, CheckedPolicy | None]:
    """Creates the first key of a new account, if one was asked for. Returns it, its token and its policy."""
    if fields is None:
        return None, None, None
    policy = None if "policy" not in fields else checked_policy_of(fields["policy"], "key.policy")
    with key_faults("key.name"):
        key, token = keys.issue(
            account,
            name=fields["name"],
            kind=fields["kind"],
            lifetime=fields.get("expires", keys.DEFAULT_LIFETIME),
        )
    if "tags" in fields:
        try:
            set_tags(key, fields["tags"])
        except InvalidRequest as error:
            raise error.within("key.") from None
    if policy is not None:
        set_policy(Holder.of_key(key), policy.rules)
    return key, token, policy


def _rename(account: Account, name: str) -> None:
    found = locked_account(account.pk)
    old, found.name = found.name, name
    found.full_clean()
    if found.name != old:
        try:
            with transaction.atomic():
                found.save(update_fields=["name"])
        except IntegrityError:
            found.full_clean()  # names the field, if another account took the name meanwhile
            raise
        subject = Subject.of_account(found)
        audit.record(found.pk, Action.ACCOUNT_CHANGED, subject, old={"name": old}, new={"name": found.name})


def _suspend(account: Account, fields: Json) -> None:
    is_suspended = locked_account(account.pk).suspended_at is not None  # requests at the same time wait
    if fields["suspended"] == is_suspended:
        return
    try:
        if fields["suspended"]:
            suspensions.suspend(account, fields["suspended_reason"], by=None)
        else:
            suspensions.lift(account, by=None)
    except suspensions.SuspensionRefused as error:
        raise InvalidRequest(str(error), param="suspended") from None


def _warnings(policy: CheckedPolicy | None) -> list[str]:
    return [] if policy is None else policy.warnings


@contextmanager
def _account_faults() -> Iterator[None]:
    """Turns the faults of an account's fields into the API's errors."""
    try:
        yield
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        codes = {each.code for each in error.error_dict[field]}
        if field == "name" and codes & {"unique", "unique_together"}:
            raise AccountExists(" ".join(messages)) from None
        raise InvalidRequest(" ".join(messages), param=field) from None
    except ledger.InvalidAmount as error:
        raise InvalidRequest(str(error), param="credit") from None
