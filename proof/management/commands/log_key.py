"""Creates, rotates and publishes the key of the transparency log."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from gateway.management.base import OperatorCommand
from proof import log_key
from proof.log_key import LogKey, LogKeyExists


class Command(OperatorCommand):
    help = (
        "Creates, rotates or prints the key of the transparency log (docs/proof.md). It is in var/log_key "
        "(LOG_KEY_FILE), or in the environment (LOG_KEY)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        todo = parser.add_subparsers(dest="todo", required=True, metavar="create|rotate|publish")
        create = todo.add_parser("create", help="make a key, and so begin a log")
        create.add_argument("--origin", help="the log's name for ever; the host of PUBLIC_URL and /log by default")
        rotate = todo.add_parser("rotate", help="sign with a new key too; the key before it goes on signing")
        rotate.add_argument("--finish", action="store_true", help="stop signing with the key before the newest one")
        todo.add_parser("publish", help="print the verifier keys, the newest first")
        for each in (create, rotate):
            each.add_argument("--print", action="store_true", help="print the key, for LOG_KEY, and write no file")

    def handle(self, *_args: Any, **options: Any) -> None:
        match options["todo"]:
            case "create":
                self._create(options["origin"], options["print"])
            case "rotate":
                self._rotate(options["finish"], options["print"])
            case "publish":
                self._publish(self._known())

    def _create(self, origin: str | None, is_printed: bool) -> None:
        origin = origin or f"{urlsplit(settings.PUBLIC_URL).netloc}/log"
        if not log_key.is_origin(origin):
            raise CommandError("--origin is up to 255 bytes of text without spaces and +, such as example.com/log.")
        if log_key.current() is not None:
            raise CommandError("There is a log key already. A new one would begin another log: see `rotate`.")
        self._keep(LogKey.new(origin), is_printed, is_new=True)

    def _rotate(self, is_end: bool, is_printed: bool) -> None:
        known = self._known()
        if is_end and len(known.seeds) == 1:
            raise CommandError("Only one key signs.")
        self._keep(known.without_former() if is_end else known.rotated(), is_printed)

    def _keep(self, key: LogKey, is_printed: bool, *, is_new: bool = False) -> None:
        if is_printed:
            self.stdout.write(key.to_text())
            return
        if settings.LOG_KEY:
            raise CommandError("The key is in LOG_KEY: use --print, and set LOG_KEY to the line.")
        try:
            log_key.write(key, settings.LOG_KEY_FILE, is_new=is_new)
        except LogKeyExists:
            raise CommandError("There is a log key already.") from None
        except OSError as error:
            raise CommandError(f"{settings.LOG_KEY_FILE}: {error.strerror}") from None
        self._publish(key)

    def _publish(self, key: LogKey) -> None:
        for each in key.verifier_keys:
            self.stdout.write(str(each))

    def _known(self) -> LogKey:
        known = log_key.current()
        if known is None:
            raise CommandError("There is no log key: run `manage.py log_key create` first.")
        return known
