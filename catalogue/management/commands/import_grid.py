from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalogue.footprint import grid_import
from catalogue.footprint.grid_sources import SOURCES, BadAnswer, slots_in
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Imports the carbon intensity of electricity from a source, in slots of up to an hour, for the given zones, "
        "or else for the zones of the catalogue's routes. Running servers use it within two seconds."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", choices=sorted(SOURCES))
        parser.add_argument("--zone", action="append", default=[], metavar="ZONE", help="such as FR or SE3; repeatable")
        origin = parser.add_mutually_exclusive_group()
        origin.add_argument(
            "--file",
            type=Path,
            metavar="PATH",
            help="imports an answer of the source that was saved in a file; needs one --zone, and asks no server",
        )
        origin.add_argument("--url", default="", metavar="URL", help="the address of a mirror of the source")

    def handle(self, *args: Any, **options: Any) -> None:
        name, zones = options["source"], list(dict.fromkeys(options["zone"]))
        source = SOURCES[name]
        unknown = [zone for zone in zones if zone not in source.zones]
        if unknown:
            raise CommandError(f"{name} has no {', '.join(unknown)}: it has {', '.join(sorted(source.zones))}.")
        if options["file"] is not None:
            if len(zones) != 1:
                raise CommandError("A file holds one zone: give one --zone.")
            try:
                slots = slots_in(source, options["file"].read_bytes())
            except (OSError, BadAnswer) as error:
                raise CommandError(f"{options['file']}: {error}") from error
            with self.committed_once_printed():
                changed = grid_import.store(name, zones[0], slots)
                self.stdout.write(f"{name} {zones[0]}: {changed} slots new or changed")
            return
        zones = zones or grid_import.zones_in_use(source)
        if not zones:
            raise CommandError(f"No route of the catalogue is in a zone of {name}: give --zone.")
        if options["url"] and not options["url"].startswith(("http://", "https://")):
            raise CommandError("--url is an http:// or https:// address.")
        imported = grid_import.import_from(name, zones, options["url"])
        for zone, changed in imported.changed.items():
            self.stdout.write(f"{name} {zone}: {changed} slots new or changed")
        if imported.faults:
            raise CommandError("; ".join(imported.faults))
