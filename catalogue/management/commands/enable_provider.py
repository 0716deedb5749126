"""Serves a disabled provider again."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalogue.management.providers import provider_from, set_disabled_reason
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Serves a provider again that was disabled by the command or in the admin."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("provider", metavar="SLUG")

    def handle(self, *_args: Any, **options: Any) -> None:
        provider = provider_from(options["provider"])
        if not provider.disabled_reason:
            raise CommandError(f"The provider {provider.slug} is not disabled.")
        with self.committed_once_printed():
            set_disabled_reason(provider, "")
            self.stdout.write(f"The provider {provider.slug} is served again.")
