"""Verifies a receipt or an export of a ledger without the gateway (docs/proof.md). Needs Python 3.11, cryptography 48.

    python verify.py receipt FILE --key VKEY [--witness VKEY] [--checkpoint OLDER]
    python verify.py export FILE --key VKEY --checkpoint SAVED [--witness VKEY]

Prints one line and exits 0, or prints the first fault and exits 1.
"""

import argparse
import json
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator
from decimal import ROUND_HALF_EVEN, Context, Decimal, setcontext
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PublicKey

setcontext(Context(prec=200, rounding=ROUND_HALF_EVEN))
LAST_DIGIT = Decimal(1).scaleb(-10)  # of money, Wh and grams
ED25519, COSIGNATURE, ML_DSA = 1, 4, 6  # types of keys (c2sp.org/signed-note)
KEYS: Any = {ED25519: Ed25519PublicKey, COSIGNATURE: Ed25519PublicKey, ML_DSA: MLDSA44PublicKey}
PROMPT = ("uncached_prompt", "cache_read", "cache_write_5m", "cache_write_1h")
# The fields of an export's line, and where its leaf has the same.
SAME = {
    "generation_id": "generation_id", "ledger_seq": "seq", "currency": "currency", "balance_after": "balance",
    "endpoint": "endpoint", "model": "route", "region": "place.locode", "cost": "cost.total", "cost_eur": "cost.eur",
    "completion_tokens": "tokens.completion", "cached_tokens": "tokens.cache_read", "energy_wh": "energy.wh",
    "energy_wh_low": "energy.wh_low", "energy_wh_high": "energy.wh_high", "energy_source": "energy.source",
    "embodied_gco2e": "energy.embodied_gco2e", "carbon_gco2e": "carbon_gco2e", "kind": "kind", "amount": "amount",
    "grid_gco2_per_kwh": "grid.gco2e_per_kwh", "reference": "reference", "usage_estimated": "tokens_estimated",
}  # fmt: skip
Fields = dict[str, Any]
Trust = tuple[list[str], list[str]]  # keys of the log, one of which must have signed; keys of witnesses, all of which


class Fault(Exception):
    """Says what does not verify."""


class Checkpoint(NamedTuple):
    """Holds the text of a signed note, its signatures with their names and key ids, and what the text says."""

    text: str
    signatures: list[tuple[str, bytes]]
    origin: str
    size: int
    root: bytes


def read_checkpoint(note: str, trust: Trust) -> Checkpoint:
    """Reads a signed note and verifies its signatures. Those of unknown keys are ignored."""
    text, _, lines = note.rpartition("\n\n")
    origin, size, root = text.split("\n")
    signatures = [(name, b64decode(signed)) for _, name, signed in (line.split(" ") for line in lines.splitlines())]
    checkpoint = Checkpoint(f"{text}\n", signatures, origin, int(size), b64decode(root))
    missing = [witness.partition("+")[0] for witness in trust[1] if not is_signed(checkpoint, witness)]
    if missing or True not in [is_signed(checkpoint, key) for key in trust[0]]:
        raise Fault(f"the checkpoint of {size} leaves has no signature of {', '.join(missing) or 'the log'}")
    return checkpoint


def is_signed(checkpoint: Checkpoint, key: str) -> bool:
    """Tells whether a key has signed. Raises Fault if its signature is wrong."""
    name, key_id, encoded = key.split("+", 2)
    kind, public = b64decode(encoded)[0], b64decode(encoded)[1:]
    if sha256(f"{name}\n".encode() + bytes([kind]) + public).hexdigest()[:8] != key_id:
        raise Fault(f"the key of {name} is no verifier key")
    own = [signed[4:] for signer, signed in checkpoint.signatures if (signer, signed[:4].hex()) == (name, key_id)]
    text, tree = checkpoint.text.encode(), bytes(8) + checkpoint.size.to_bytes(8) + checkpoint.root
    signer, log = (len(each.encode()).to_bytes(1) + each.encode() for each in (name, checkpoint.origin))
    for signed in own:
        message = {
            COSIGNATURE: b"cosignature/v1\ntime %d\n" % int.from_bytes(signed[:8]) + text,
            ML_DSA: b"subtree/v1\n\0" + signer + signed[:8] + log + tree,
        }.get(kind, text)
        try:
            KEYS[kind].from_public_bytes(public).verify(signed if kind == ED25519 else signed[8:], message)
        except InvalidSignature:
            raise Fault(f"the signature of {name} on the checkpoint of {checkpoint.size} leaves is wrong") from None
    return bool(own)


def hash_of(*parts: bytes) -> bytes:
    """Returns the hash of a leaf (0x00 and the leaf) or a node (0x01 and two hashes), as in RFC 6962, 2.1."""
    return sha256(b"".join(parts)).digest()


def root_with(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """Returns the root that an inclusion proof leads to; removes from `path` what it uses."""
    if size <= 1:
        return leaf
    sibling, left = path.pop(), 1 << (size - 1).bit_length() - 1
    if index < left:
        return hash_of(b"\x01", root_with(leaf, index, left, path), sibling)
    return hash_of(b"\x01", sibling, root_with(leaf, index - left, size - left, path))


def roots_with(old: int, new: int, path: list[bytes], known: bytes | None) -> tuple[bytes, bytes]:
    """Returns the roots of the old and the new tree that a consistency proof leads to; `known` is the old one."""
    if old == new:
        same = path.pop(0) if known is None else known
        return same, same
    left = 1 << (new - 1).bit_length() - 1
    at = (old, left, path, known) if old <= left else (old - left, new - left, path, None)
    (before, after), sibling = roots_with(*at), path.pop(0)
    if old <= left:
        return before, hash_of(b"\x01", after, sibling)
    return hash_of(b"\x01", sibling, before), hash_of(b"\x01", sibling, after)


def check_growth(old: Checkpoint | None, new: Checkpoint, holder: Fields) -> None:
    """Checks that the log has only grown since the saved checkpoint, by the proof that the file has for its size."""
    if old is None or not old.size:
        return
    if old.origin != new.origin or old.size > new.size:
        raise Fault(f"the saved checkpoint is newer or of another log: {old.size} leaves, the file has {new.size}")
    if old.size < new.size and holder.get("consistent_with") != old.size:
        raise Fault(f"the file has no proof of consistency with the saved checkpoint: ask for size {old.size}")
    path = [b64decode(each) for each in holder["consistency"]] if old.size < new.size else []
    if roots_with(old.size, new.size, path, old.root) != (old.root, new.root) or path:
        raise Fault(f"the log of {new.size} leaves does not begin with the saved one of {old.size}: it was rewritten")


def check_inclusion(holder: Fields, trust: Trust, known: dict[str, Checkpoint]) -> bytes:
    """Checks the proof of a leaf (c2sp.org/tlog-proof), adds its checkpoint to `known`, and returns the leaf's hash."""
    head, _, note = holder["proof"].partition("\n\n")
    mark, number, *path = head.split("\n")
    index, leaf = holder["index"], hash_of(b"\x00", holder["leaf"].encode())
    checkpoint = known[note] = known.get(note) or read_checkpoint(note, trust)
    hashes = [b64decode(each) for each in path]
    is_in_order = (mark, number) == ("c2sp.org/tlog-proof@v1", f"index {index}") and 0 <= index < checkpoint.size
    if not is_in_order or root_with(leaf, index, checkpoint.size, hashes) != checkpoint.root or hashes:
        raise Fault(f"leaf {index} is not in the log of {checkpoint.size} leaves")
    return leaf


def read_leaf(text: str) -> Fields:
    """Reads a leaf, and recomputes its figures."""
    leaf: Fields = json.loads(text)
    if json.dumps(leaf, sort_keys=True, separators=(",", ":"), ensure_ascii=False) != text:
        raise Fault(f"entry {leaf.get('seq')}: its leaf is no canonical JSON")
    for name, stated, *expected in figures_of(leaf) if leaf["kind"] == "usage" else ():
        if stated not in expected:
            raise Fault(f"entry {leaf['seq']}: {name} is {stated} and comes out as {expected[0]}")
    return leaf


def figures_of(leaf: Fields) -> Iterator[tuple[Any, ...]]:
    """Yields the name of each figure, the figure, and what it must be: price or factor x usage."""
    counts = {kind: int(number) for kind, number in leaf["tokens"].items()}
    uncached, read, write, write_1h = (counts.get(kind, 0) for kind in PROMPT)
    prompt, output = uncached + read + write + write_1h, counts["completion"]
    # 1. Cost, in the account's currency and in EUR: prices are per 1,000,000 tokens, of the tier for this prompt.
    cost = {name: Decimal(figure) for name, figure in leaf["cost"].items()}
    yield "amount", Decimal(leaf["amount"]), -cost["total"]
    yield "cost", cost["total"], cost["prompt"] + cost["completion"]
    if "price" in leaf:
        tiers = [tier for tier in leaf["price"].get("tiers", ()) if prompt > int(tier["above_prompt_tokens"])]
        stated = (tiers or [leaf["price"]])[-1].items()
        price = {name: Decimal(figure) for name, figure in stated if name not in ("currency", "tiers")}
        of_write = price.get("cache_write", price["prompt"])
        of_prompt = uncached * price["prompt"] + read * price.get("cache_read", price["prompt"])
        of_prompt += write * of_write + write_1h * price.get("cache_write_1h", of_write)
        parts = (of_prompt / 10**6, output * price["completion"] / 10**6)
        own, eur = ([part * Decimal(leaf["rates"][rate]) for part in parts] for rate in ("account", "eur"))
        yield "prompt cost", cost["prompt"], own[0].quantize(LAST_DIGIT)
        yield "completion cost", cost["completion"], own[1].quantize(LAST_DIGIT)
        in_eur = eur[0].quantize(LAST_DIGIT) + eur[1].quantize(LAST_DIGIT)
        yield "cost in EUR", cost["eur"], in_eur, (eur[0] + eur[1]).quantize(LAST_DIGIT)  # the rule of older records
    # 2. Energy and carbon. Energy that the provider measured is taken as stated.
    energy, tokens = leaf.get("energy", {}), {"output": output, "prompt": prompt - read, "cached": read}
    wh = Decimal(energy["wh"]) if energy.get("source") == "measured" else None
    for factors in (name for name in energy if "_per_token" in name):
        product = sum((tokens[kind] * Decimal(figure) for kind, figure in energy[factors].items()), Decimal(0))
        wh = product if factors == "wh_per_token" else wh
        name = factors.replace("_per_token", "")
        yield f"energy {name}", Decimal(energy[name]), product.quantize(LAST_DIGIT)
    if "grid" in leaf and wh is not None:
        carbon = wh * int(leaf["grid"]["gco2e_per_kwh"]) / 1000
        yield "carbon", Decimal(leaf["carbon_gco2e"]), carbon.quantize(LAST_DIGIT)


def verify_receipt(receipt: Fields, trust: Trust, saved: Checkpoint | None) -> str:
    """Verifies a receipt, and returns a line about it."""
    leaf, known = read_leaf(receipt["leaf"]), dict[str, Checkpoint]()
    check_inclusion(receipt, trust, known)
    if leaf["generation_id"] != receipt["generation_id"] or receipt["checkpoint"] not in known:
        raise Fault("the leaf or the checkpoint is not the one that the receipt names")
    check_growth(saved, known[receipt["checkpoint"]], receipt)
    return f"{leaf['generation_id']}: {leaf['route']}, {leaf['cost']['total']} {leaf['currency']}, is in the log"


def verify_export(lines: Iterable[str], trust: Trust, saved: Checkpoint | None) -> str:
    """Verifies an export of a period, line by line, and returns a line about it."""
    known, entries, last = dict[str, Checkpoint](), list[tuple[int, Fields, bytes]](), dict[str, Fields]()
    sums = dict.fromkeys(("cost", "cost_eur", "energy_wh", "carbon_gco2e"), Decimal(0))
    for line in map(json.loads, lines):
        if line["line"] in ("total", "checkpoint"):
            last[line["line"]] = line
        elif "leaf" in line:
            leaf = read_leaf(line["leaf"])
            entries.append((int(leaf["seq"]), leaf, check_inclusion(line, trust, known)))
            prompt = sum(int(leaf.get("tokens", {}).get(kind, 0)) for kind in PROMPT)
            inner = {
                f"{name}.{part}": leaf[name][part]
                for name in leaf
                if isinstance(leaf[name], dict)
                for part in leaf[name]
            }
            in_leaf = {name: (leaf | inner).get(place) for name, place in SAME.items()} | {"prompt_tokens": prompt}
            for name in in_leaf.keys() & line.keys():
                if str(line[name]) != str(in_leaf[name]):
                    raise Fault(f"entry {leaf['seq']}: {name} is {line[name]}, its leaf has {in_leaf[name]}")
        elif "cost" in line or line["line"] != "generation":
            raise Fault(f"{line.get('generation_id', 'an entry')} changed the balance, but has no leaf")
        for name in sums if line["line"] == "generation" else ():
            sums[name] += Decimal(line.get(name, 0))
    total, end = last["total"], last["checkpoint"]
    check_sequence(sorted(entries, key=lambda entry: entry[0]), total)
    for name, computed in sums.items():
        if Decimal(total.get(name, computed)) != computed:
            raise Fault(f"the total of {name} is {total[name]}, the lines add up to {computed}")
    newest = known[end["checkpoint"]] if entries else read_checkpoint(end["checkpoint"], trust)
    check_growth(saved, newest, end)
    return f"{len(entries)} entries, {sums['cost']} {total['currency']} of usage, checkpoint of {newest.size} leaves"


def check_sequence(entries: list[tuple[int, Fields, bytes]], total: Fields) -> None:
    """Checks that the account's entries have no gap, and that each balance follows from the one before it."""
    balance, credited, follows = Decimal(total["opening_balance"]), Decimal(0), None
    for seq, leaf, leaf_hash in entries:
        follows = follows or (seq, leaf["account"], None if seq == 1 else leaf.get("previous"))
        balance += Decimal(leaf["amount"])
        if (seq, leaf["account"], leaf.get("previous")) != follows or (seq > 1 and "previous" not in leaf):
            raise Fault(f"entry {seq} does not follow entry {follows[0] - 1}: an entry is missing, or was changed")
        if Decimal(leaf["balance"]) != balance:
            raise Fault(f"entry {seq}: the balance is {leaf['balance']} and comes out as {balance}")
        follows = (seq + 1, leaf["account"], leaf_hash.hex())
        credited += Decimal(0 if leaf["kind"] == "usage" else leaf["amount"])
    if (Decimal(total["closing_balance"]), Decimal(total["credits"])) != (balance, credited):
        raise Fault(f"the closing balance is {total['closing_balance']}, the entries add up to {balance}")


def main() -> int:
    """Runs the command line, and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("receipt", "export"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--key", action="append", required=True, help="a verifier key of the log; can be repeated")
    parser.add_argument("--witness", action="append", default=[], help="the key of a witness that must have cosigned")
    parser.add_argument("--checkpoint", type=Path, help="a checkpoint of this log that was saved before")
    given = parser.parse_args()
    if given.kind == "export" and given.checkpoint is None:
        parser.error("an export is verified against a saved --checkpoint")
    try:
        saved = given.checkpoint and read_checkpoint(given.checkpoint.read_text(encoding="utf-8"), (given.key, []))
        with given.file.open(encoding="utf-8") as file:
            verify = verify_receipt if given.kind == "receipt" else verify_export
            found = verify(json.load(file) if given.kind == "receipt" else file, (given.key, given.witness), saved)
    except Fault as fault:
        found = f"FAULT: {fault}"
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        found = f"FAULT: a file cannot be read: {error!r}"
    sys.stdout.write(f"{found}\n")
    return found.startswith("FAULT")


if __name__ == "__main__":
    sys.exit(main())
