"""Disables a provider with all its offers."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalogue.management.providers import provider_from, set_disabled_reason
from catalogue.models import Provider
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Disables a provider, on every worker within two seconds. enable_provider serves it again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("provider", metavar="SLUG")
        parser.add_argument("--reason", required=True, metavar="TEXT", help="why; shown to clients in errors")

    def handle(self, *_args: Any, **options: Any) -> None:
        provider, reason = provider_from(options["provider"]), options["reason"].strip()
        longest = Provider._meta.get_field("disabled_reason").max_length or 0
        if not 0 < len(reason) <= longest:
            raise CommandError(f"--reason takes 1 to {longest} characters.")
        with self.committed_once_printed():
            set_disabled_reason(provider, reason)
            self.stdout.write(f"The provider {provider.slug} has been disabled.")
