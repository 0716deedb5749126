from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalogue.loader.files import read
from gateway.installation import RESOURCES_DIR
from gateway.management.base import OperatorCommand
from tools import energy

SIZES = RESOURCES_DIR / "tools" / "model_sizes.yaml"
SHIPPED = RESOURCES_DIR / "catalogue" / "data" / "energy.yaml"


class Command(OperatorCommand):
    help = (
        "Prints the energy and the embodied carbon of a model's tokens, with bounds and each step of their derivation "
        "(docs/energy.md): of a model of the shipped catalogue, or of one with these parameters."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", nargs="?", help="a canonical id of tools/model_sizes.yaml")
        parser.add_argument("--total-b", type=float, metavar="N", help="billions of parameters")
        parser.add_argument("--active-b", type=float, metavar="N", help="those that work on a token; all where absent")
        parser.add_argument("--gpus", type=int, metavar="N", help="of a replica; as many as it needs where absent")
        parser.add_argument("--tokens-per-s", type=float, metavar="N", help="measured speed of one answer")
        parser.add_argument("--pue", type=float, metavar="N", help="of the data centre")
        parser.add_argument("--embedding", action="store_true", help="an embedding model, which has no output")
        parser.add_argument("--write", action="store_true", help="compute the shipped catalogue's figures anew")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["write"]:
            text = catalogue_file(read(SIZES))
            self.stdout.write(f"Writing {SHIPPED}.")
            self.stdout.flush()
            SHIPPED.write_text(text, encoding="utf-8")
            return
        self.stdout.write("\n".join(derivation(self._facts(options))))

    def _facts(self, options: Mapping[str, Any]) -> energy.Facts:
        if options["model"] is not None:
            entries = {entry["id"]: entry for entry in read(SIZES)["models"]}
            if options["model"] not in entries:
                raise CommandError(f"{options['model']} is not in {SIZES.name}: give --total-b.")
            return facts_of(entries[options["model"]])
        if options["total_b"] is None:
            raise CommandError("Name a model or give --total-b.")
        entry = {key: value for key, value in options.items() if value is not None}
        return facts_of({"active_b": options["total_b"], **entry})


def facts_of(entry: Mapping[str, Any]) -> energy.Facts:
    """Returns the facts of an entry in the file of sizes, in which one number may stand for both ends of a range."""

    def ends(key: str) -> tuple[float, float]:
        stated = entry[key]
        least, most = stated if isinstance(stated, list) else (stated, stated)
        return float(least), float(most)

    speed = float(entry["tokens_per_s"]) if "tokens_per_s" in entry else None
    smallest, largest = (
        energy.Size(total, active, entry.get("gpus"), speed)
        for total, active in zip(ends("total_b"), ends("active_b"), strict=True)
    )
    pue = ends("pue") if "pue" in entry else None
    if min(*ends("total_b"), *ends("active_b"), entry.get("gpus", 1), 1 if speed is None else speed) <= 0:
        raise CommandError("Parameters, GPUs and speed must be above zero.")
    if pue is not None and min(pue) < 1:
        raise CommandError("A PUE is 1 or more.")
    return energy.Facts(smallest, largest, pue, embedding=entry.get("embedding", False))


def derivation(facts: energy.Facts) -> Iterator[str]:
    """Yields lines of text: the assumptions of each case, the results for each kind of token, and the figures."""
    cases = energy.cases(facts)
    columns = ["low", "value", "value (largest)", "high"]
    if facts.smallest == facts.largest and cases[1] == cases[2]:
        del cases[2], columns[2]
    yield _row("", columns)
    blocks = [
        ("", [asdict(size) | asdict(serving) for size, serving in cases]),
        ("output: ", [asdict(energy.decode(*case)) for case in cases]),
        ("output at scale: ", [asdict(energy.decode_at_scale(*cases[0]))]),
        ("prompt: ", [asdict(energy.prefill(*case)) for case in cases]),
    ]
    for title, steps in blocks:
        yield from ("", *(_row(title + key, [step[key] for step in steps]) for key in steps[0]))
    figures = energy.estimate(facts).stored()
    for title, key in (("Wh per token", "wh"), ("g CO2e embodied per token", "embodied_g")):
        yield from ("", _row(title, ["low", "value", "high"]))
        yield from (_row(f"  {kind}", bounds) for kind, bounds in figures[key].items())


def _row(title: str, cells: list[Any]) -> str:
    shown = (f"{cell:.4g}" if isinstance(cell, float) else "" if cell is None else str(cell) for cell in cells)
    return f"{title:<28}" + "".join(f"{cell:>17}" for cell in shown)


def catalogue_file(sizes: Mapping[str, Any]) -> str:
    """Returns the shipped table of energy."""
    lines = [
        "# Wh and embodied g CO2e per token, [low, value, high], by canonical model id: estimates, the same wherever a",
        "# model runs. Written by `manage.py estimate_energy --write` from tools/model_sizes.yaml, which has the",
        "# inputs; `manage.py estimate_energy ID` prints how a figure comes about. The method is docs/energy.md.",
        "",
        "energy:",
        "  source:",
        *(f"    - {source}" for source in sizes["method_source"]),
        f"  as_of: {sizes['as_of']}",
    ]
    for entry in sizes["models"]:
        figures = energy.estimate(facts_of(entry)).stored()
        lines += ["", f"  {entry['id']}:"]
        for quantity in ("wh", "embodied_g"):
            lines += [f"    {quantity}:"]
            lines += [f"      {kind}: [{', '.join(bounds)}]" for kind, bounds in figures[quantity].items()]
        lines += [f"    {key}: {figures[key]}" for key in ("pue", "method")]
        lines += [f"    source: {entry['source']}", f"    as_of: {entry.get('as_of', sizes['as_of'])}"]
    return "\n".join([*lines, ""])
