"""Parses the arguments of commands that are about policies."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts import keys
from accounts.models import Account, ApiKey
from billing.policies import Holder
from catalogue.policy_form import CheckedPolicy, PolicyDecoder, checked_policy
from catalogue.routing import snapshot
from gateway.errors import InvalidRequest


def add_holder(parser: CommandParser) -> None:
    """Adds --key, --tag and --default, of which one may be given. Without them the policy is the account's."""
    holder = parser.add_mutually_exclusive_group()
    holder.add_argument("--key", metavar="NAME", help="the policy of this key")
    holder.add_argument("--tag", metavar="NAME=VALUE", help="the policy of all keys with this tag")
    holder.add_argument("--default", action="store_true", help="the policy that new keys are given")


def holder_from(account: Account, options: dict[str, Any]) -> Holder:
    """Returns whose policy the options name. Raises CommandError."""
    if options["key"] is not None:
        return Holder.of_key(key_from(account, options["key"]))
    if options["tag"] is not None:
        try:
            return Holder.of_tag(account, options["tag"])
        except InvalidRequest as error:
            raise CommandError(error.message) from None
    return Holder.of_default(account) if options["default"] else Holder.of_account(account)


def key_from(account: Account, name: str) -> ApiKey:
    """Returns the account's key of this name. Raises CommandError."""
    key = keys.find(account, name)
    if key is None:
        raise CommandError(f"The account has no key named {name!r}.")
    return key


def policy_from(text: str) -> CheckedPolicy:
    """Reads a policy from JSON, or from the file that `text` names. Raises CommandError, which names the field."""
    try:
        content = text if text.lstrip().startswith("{") else Path(text).read_text()
        data = json.loads(content, cls=PolicyDecoder)
    except (OSError, ValueError) as error:
        raise CommandError(f"A policy is a JSON object, or a file with one: {error}") from None
    snapshot.refresh()
    try:
        return checked_policy(snapshot.current(), data)
    except InvalidRequest as error:
        raise CommandError(error.message) from None
