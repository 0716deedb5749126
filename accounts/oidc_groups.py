"""Gives people what the identity provider's groups grant (OIDC_GROUPS), and takes away what they granted before."""

import json
import logging
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.checks import CheckMessage, Warning

from . import audit, members
from .members import LastOwner
from .models import Account, Membership, User

logger = logging.getLogger(__name__)
STAFF = "staff"
RULE = (
    'OIDC_GROUPS is a JSON object such as {"engineers": [{"account": "Acme", "role": "member"}], "operators": "staff"}'
    '; "staff:Support" also gives the rights of Support.'
)


@dataclass(slots=True)
class Grants:
    """Holds what groups grant: roles by account, and names of groups of rights for staff."""

    roles: dict[UUID, str] = field(default_factory=dict)
    is_staff: bool = False
    rights: set[str] = field(default_factory=set)


def grants_of(groups: frozenset[str]) -> Grants:
    """Returns what these groups grant together, without the entries that have a fault."""
    found = Grants()
    for group, entries in _mapping()[0].items():
        if group not in groups:
            continue
        for entry in entries:
            if isinstance(entry, str):
                found.is_staff = True
                found.rights |= {*filter(None, [_rights(entry)])} & _existing_rights()
            elif (account := _account(entry["account"])) is not None and account.closed_at is None:
                is_owner = Membership.Role.OWNER in (entry["role"], found.roles.get(account.pk))
                found.roles[account.pk] = Membership.Role.OWNER if is_owner else Membership.Role.MEMBER
    return found


def faults() -> list[str]:
    """Says what is wrong with the form of OIDC_GROUPS."""
    return _mapping()[1]


def unknown_names() -> list[str]:
    """Says which accounts and groups of rights in OIDC_GROUPS do not exist."""
    entries = [entry for found in _mapping()[0].values() for entry in found]
    accounts = {entry["account"] for entry in entries if isinstance(entry, dict)}
    rights = {_rights(entry) for entry in entries if isinstance(entry, str)} - {""}
    return [
        *(
            f"OIDC_GROUPS names the account {name!r}, which does not exist."
            for name in sorted(accounts)
            if not _account(name)
        ),
        *(
            f"OIDC_GROUPS names the group of rights {name!r}, which does not exist."
            for name in sorted(rights - _existing_rights())
        ),
    ]


def check_form(**_options: Any) -> list[CheckMessage]:
    """Warns of faults in `manage.py check`."""
    return [Warning(fault, hint=RULE, id="accounts.W001") for fault in faults()]


def apply(person: User, groups: frozenset[str], noted: dict[str, Any]) -> dict[str, Any]:
    """Gives the person the memberships and the staff status that groups grant. Call it within a transaction.

    `noted` says what groups have granted to a member of staff so far; the new note is returned. While OIDC_GROUPS has a
    fault, nothing is taken away: nobody knows what the entry would have granted.
    """
    wrong = [*faults(), *unknown_names()]
    for fault in wrong:
        logger.warning("single sign-on: %s Nothing is taken away until then.", fault)
    grants = grants_of(groups)
    acting = replace(audit.actor(), kind=audit.Kind.SYSTEM, id="", name="single sign-on")
    with audit.acting_as(acting):
        _apply_roles(person, grants.roles, may_remove=not wrong)
    return _apply_staff(person, grants, noted, may_remove=not wrong)


def _apply_roles(person: User, roles: dict[UUID, str], *, may_remove: bool) -> None:
    granted = Membership.objects.filter(user=person, by_oidc=True).values_list("account_id", flat=True)
    for account_id in sorted({*roles, *granted}):  # in one order, so that two sign-ins do not wait for each other
        members.locked_account(account_id)
        found = Membership.objects.filter(user=person, account=account_id).first()
        role = roles.get(account_id)
        try:
            if found is None and role is not None:
                Membership.objects.create(user=person, account_id=account_id, role=role, by_oidc=True)
            elif found is None or not found.by_oidc or found.role == role:
                continue
            elif role is not None:
                members.set_role(found, role)
            elif may_remove:
                members.end(found)
        except LastOwner:
            logger.warning("account %s: person %s stays, as its last owner", account_id, person.pk)
        else:
            logger.info("account %s: groups make person %s %s", account_id, person.pk, role or "no member")


def _apply_staff(person: User, grants: Grants, noted: dict[str, Any], *, may_remove: bool) -> dict[str, Any]:
    gave_staff, gave_rights = bool(noted.get("staff")), {*noted.get("rights", [])}
    has_rights = {*person.groups.values_list("name", flat=True)}
    if grants.is_staff and not person.is_staff:
        gave_staff = person.is_staff = True
        person.save(update_fields=["is_staff"])
        logger.info("groups make person %s staff", person.pk)
    elif gave_staff and not grants.is_staff and may_remove:
        gave_staff = person.is_staff = False
        person.save(update_fields=["is_staff"])
        logger.info("groups make person %s no longer staff", person.pk)
    added, removed = grants.rights - has_rights, gave_rights - grants.rights if may_remove else set()
    person.groups.add(*Group.objects.filter(name__in=added))
    person.groups.remove(*Group.objects.filter(name__in=removed))
    return {"staff": gave_staff, "rights": sorted((gave_rights | added) - removed)}


def _mapping() -> tuple[dict[str, list[Any]], list[str]]:
    """Returns the usable entries by group, and what is wrong with the others."""
    if not settings.OIDC_GROUPS:
        return {}, []
    try:
        found = json.loads(settings.OIDC_GROUPS)
    except ValueError:
        return {}, ["OIDC_GROUPS is no JSON."]
    if not isinstance(found, dict):
        return {}, ["OIDC_GROUPS is no JSON object."]
    usable: dict[str, list[Any]] = {}
    wrong = []
    for group, value in found.items():
        entries = value if isinstance(value, list) else [value]
        usable[group] = [entry for entry in entries if _is_entry(entry)]
        if len(usable[group]) < len(entries):
            wrong.append(f"OIDC_GROUPS has an entry of {group!r} that is no account with a role, and not staff.")
    return usable, wrong


def _is_entry(entry: object) -> bool:
    if isinstance(entry, dict):
        return (
            entry.keys() == {"account", "role"}
            and isinstance(entry["account"], str)
            and entry["role"] in Membership.Role.values
        )
    return isinstance(entry, str) and (entry == STAFF or entry.startswith(f"{STAFF}:"))


def _account(name_or_id: str) -> Account | None:
    try:
        return Account.objects.named(name_or_id)
    except Account.DoesNotExist:
        return None


def _rights(entry: str) -> str:
    return entry.partition(":")[2].strip()


def _existing_rights() -> set[str]:
    return {*Group.objects.values_list("name", flat=True)}
