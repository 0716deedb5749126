"""Verifies a receipt or an export of a ledger without the gateway (docs/proof.md). Needs cryptography 48 or later."""

import argparse
import json
import sys
from base64 import b64decode
from collections import deque
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Context, Decimal, setcontext
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519, mldsa

setcontext(Context(prec=200, rounding=ROUND_HALF_EVEN))
LAST_DIGIT = Decimal(1).scaleb(-10)  # of money, Wh and grams
ED25519, COSIGNATURE, ML_DSA = 1, 4, 6  # types of keys (c2sp.org/signed-note)
KEYS: Any = {ED25519: ed25519.Ed25519PublicKey, COSIGNATURE: ed25519.Ed25519PublicKey, ML_DSA: mldsa.MLDSA44PublicKey}
FORMAT = "inference-gateway-ledger-entry@v1"
SUMS = "cost cost_eur energy_wh carbon_gco2e prompt_tokens completion_tokens total_tokens requests"
PROMPT = ("uncached_prompt", "cache_read", "cache_write_5m", "cache_write_1h")
# Fields of a line that have another name in its leaf (`cost_total` is `total` of `cost`), and those that it may lack.
NAMES = """balance_after=balance cached_tokens=tokens_cache_read completion_tokens=tokens_completion cost=cost_total
embodied_gco2e=energy_embodied_gco2e grid_gco2_per_kwh=grid_gco2e_per_kwh ledger_seq=seq model=route
region=place_locode usage_estimated=tokens_estimated"""
UNPROVED = """leaf index proof checkpoint consistent_with consistency key alias_id
wh_per_output_token wh_per_prompt_token wh_per_cached_token"""
Fields = dict[str, Any]


class Fault(ValueError):
    """Says what does not verify."""


class Checkpoint(NamedTuple):
    """Holds a signed note and what it says."""

    note: str
    origin: str
    size: int
    root: bytes


def read_checkpoint(note: str, keys: list[str], witnesses: list[str]) -> Checkpoint:
    """Reads a signed note. One of the log's keys and all witnesses must have signed; other signatures are ignored."""
    origin, size, root = note[: note.rindex("\n\n")].split("\n")
    checkpoint = Checkpoint(note, origin, int(size), b64decode(root))
    missing = [key.partition("+")[0] for key in witnesses if not is_signed(checkpoint, key)]
    if missing or True not in [is_signed(checkpoint, key) for key in keys]:
        raise Fault(f"the checkpoint of {size} leaves has no signature of {', '.join(missing) or 'the log'}")
    return checkpoint


def is_signed(checkpoint: Checkpoint, key: str) -> bool:
    """Tells whether a key has signed. Raises Fault if its signature is wrong."""
    name, key_id, encoded = key.split("+", 2)
    kind, public, size = b64decode(encoded)[0], b64decode(encoded)[1:], checkpoint.size.to_bytes(8)
    if sha256(f"{name}\n".encode() + b64decode(encoded)).hexdigest()[:8] != key_id:
        raise Fault(f"the key of {name} is no verifier key")
    text, _, lines = checkpoint.note.rpartition("\n\n")
    contents = [b64decode(line.split(" ")[2]) for line in lines.splitlines() if line.split(" ")[1] == name]
    own = [content[4:] for content in contents if content[:4].hex() == key_id]
    signer, log = (len(each.encode()).to_bytes(1) + each.encode() for each in (name, checkpoint.origin))
    for signed in own:
        message = f"{text}\n".encode()
        if kind == COSIGNATURE:
            message = b"cosignature/v1\ntime %d\n" % int.from_bytes(signed[:8]) + message
        elif kind == ML_DSA:
            message = b"subtree/v1\n\0" + signer + signed[:8] + log + bytes(8) + size + checkpoint.root
        try:
            KEYS[kind].from_public_bytes(public).verify(signed if kind == ED25519 else signed[8:], message)
        except InvalidSignature:
            raise Fault(f"the signature of {name} on the checkpoint of {checkpoint.size} leaves is wrong") from None
    return bool(own)


def root_with(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:
    """Returns the root that an inclusion proof leads to (RFC 6962, 2.1); removes from `path` what it uses."""
    if size <= 1:
        return leaf
    sibling, left = path.pop(), 1 << (size - 1).bit_length() - 1
    if index < left:
        return sha256(b"\x01" + root_with(leaf, index, left, path) + sibling).digest()
    return sha256(b"\x01" + sibling + root_with(leaf, index - left, size - left, path)).digest()


def roots_with(old: int, new: int, path: list[bytes], known: bytes | None) -> tuple[bytes, bytes]:
    """Returns the roots of the old and the new tree that a consistency proof leads to; `known` is the old one."""
    if old == new:
        same = path.pop(0) if known is None else known
        return same, same
    left = 1 << (new - 1).bit_length() - 1
    if old <= left:
        before, after = roots_with(old, left, path, known)
        return before, sha256(b"\x01" + after + path.pop(0)).digest()
    (before, after), sibling = roots_with(old - left, new - left, path, None), path.pop(0)
    return sha256(b"\x01" + sibling + before).digest(), sha256(b"\x01" + sibling + after).digest()


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


def check_inclusion(holder: Fields, checkpoint: Checkpoint) -> bytes:
    """Checks that a leaf is in the tree of a checkpoint (c2sp.org/tlog-proof), and returns its hash."""
    index, leaf, size = holder["index"], sha256(b"\0" + holder["leaf"].encode()).digest(), checkpoint.size
    head, _, note = holder["proof"].partition("\n\n")
    mark, number, *path = head.split("\n")
    hashes = [b64decode(each) for each in path]
    is_proof = (mark, number, note) == ("c2sp.org/tlog-proof@v1", f"index {index}", checkpoint.note)
    if not is_proof or not 0 <= index < size or root_with(leaf, index, size, hashes) != checkpoint.root or hashes:
        raise Fault(f"leaf {index} is not proved to be in the log of {size} leaves")
    return leaf


def figures_of(leaf: Fields, counts: list[int], price: Fields) -> Iterator[tuple[Any, ...]]:
    """Yields the name of each figure, the figure, and what it must be when rounded: price or factor x usage."""
    prompt, cached, output = sum(counts), counts[1], int(leaf["tokens"]["completion"])
    cost = {name: Decimal(figure) for name, figure in leaf["cost"].items()}  # prices are per 1,000,000 tokens
    yield "amount", Decimal(leaf["amount"]), -cost["total"]
    yield "cost", cost["total"], cost["prompt"] + cost["completion"]
    if price:
        write = price.get("cache_write", price["prompt"])
        prices = (price["prompt"], price.get("cache_read", price["prompt"]), write, price.get("cache_write_1h", write))
        millions = [count * Decimal(each) / 10**6 for count, each in zip(counts, prices, strict=True)]
        of_prompt, of_output = sum(millions, Decimal(0)), output * Decimal(price["completion"]) / 10**6
        account, eur = (Decimal(leaf["rates"][rate]) for rate in ("account", "eur"))
        yield "prompt cost", cost["prompt"], of_prompt * account
        yield "completion cost", cost["completion"], of_output * account
        in_eur = (of_prompt * eur).quantize(LAST_DIGIT) + (of_output * eur).quantize(LAST_DIGIT)
        yield "cost in EUR", cost["eur"], in_eur, (of_prompt + of_output) * eur  # older records: rounded once
    energy, tokens = leaf.get("energy", {}), {"output": output, "prompt": prompt - cached, "cached": cached}
    wh = Decimal(energy["wh"]) if energy.get("source") == "measured" else None  # what was measured is taken as stated
    for factors in (name for name in energy if "_per_token" in name):
        product = sum((tokens[kind] * Decimal(figure) for kind, figure in energy[factors].items()), Decimal(0))
        wh = product if factors == "wh_per_token" else wh
        yield f"energy {factors}", Decimal(energy[factors.replace("_per_token", "")]), product
    if "grid" in leaf and wh is not None:
        yield "carbon", Decimal(leaf["carbon_gco2e"]), wh * int(leaf["grid"]["gco2e_per_kwh"]) / 1000


def read_entry(holder: Fields, checkpoint: Checkpoint, key_ids: Fields) -> Fields:
    """Verifies the leaf of a receipt or of an export's line, and returns its fields by the names of such a line."""
    leaf: Fields = json.loads(holder["leaf"])
    canonical = json.dumps(leaf, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    if (leaf["format"], canonical) != (FORMAT, holder["leaf"]):
        raise Fault(f"entry {leaf.get('seq')}: its leaf is no canonical JSON of format {FORMAT}")
    parts = {f"{name}_{part}": leaf[name][part] for name in leaf if type(leaf[name]) is dict for part in leaf[name]}
    entry = leaf | parts | {"object": "receipt", "line": "credit", "log_index": holder["index"]}
    entry |= {name: entry.get(place) for name, place in (each.split("=") for each in NAMES.split())}
    entry["key_id"] = key_ids.setdefault(entry.pop("key", None), holder.get("key_id"))
    if leaf["kind"] == "usage":
        counts, price = [int(leaf["tokens"].get(kind, 0)) for kind in PROMPT], leaf.get("price", {})
        tiers = [tier for tier in price.get("tiers", ()) if sum(counts) > int(tier["above_prompt_tokens"])]
        for name, stated, *expected in figures_of(leaf, counts, (tiers or [price])[-1]):
            if stated not in [each.quantize(LAST_DIGIT) for each in expected]:
                raise Fault(f"entry {leaf['seq']}: {name} is {stated} and comes out as {expected[0]}")
        entry |= {"line": "generation", "provider": leaf["route"].split("/")[0], "tags": " ".join(leaf.get("tags", ()))}
        entry |= {"prompt_tokens": sum(counts), "total_tokens": sum(counts) + int(leaf["tokens"]["completion"])}
        entry["price_above_prompt_tokens"] = tiers[-1]["above_prompt_tokens"] if tiers else None
        entry |= {f"wh_per_{kind}_token": each for kind, each in parts.get("energy_wh_per_token", {}).items()}
        entry["interrupted"] = leaf["ending"] != "finished"
    for name, value in holder.items():
        if (name in entry or name not in UNPROVED.split()) and str(value) != str(entry.get(name)):
            raise Fault(f"entry {leaf['seq']}: {name} is {value}, its leaf has {entry.get(name)}")
    return entry | {"hash": check_inclusion(holder, checkpoint).hex()}


def verify_receipt(file: TextIO, keys: list[str], witnesses: list[str], saved: Checkpoint | None) -> str:
    """Verifies a receipt, and returns a line about it."""
    receipt = json.load(file)
    checkpoint = read_checkpoint(receipt["checkpoint"], keys, witnesses)
    entry = read_entry(receipt, checkpoint, {})
    check_growth(saved, checkpoint, receipt)
    return f"{receipt['generation_id']}: {entry['model']}, {entry['cost']} {entry['currency']}, is in the log"


def verify_export(file: TextIO, keys: list[str], witnesses: list[str], saved: Checkpoint | None) -> str:
    """Verifies an export of a period, line by line, and returns a line about it."""
    total, end = map(json.loads, deque(file, maxlen=2))
    checkpoint, entries = read_checkpoint(end["checkpoint"], keys, witnesses), list[Fields]()
    check_growth(saved, checkpoint, end)
    sums, key_ids = dict.fromkeys(SUMS.split(), Decimal(0)), Fields()
    file.seek(0)
    for line in map(json.loads, file):
        if "leaf" in line:
            entries.append(read_entry(line, checkpoint, key_ids))
        elif line not in (total, end) and ({"cost", "cost_eur"} & line.keys() or line["line"] != "generation"):
            raise Fault(f"{line.get('generation_id', 'an entry')} changed the balance, but has no leaf")
        for name in sums if line["line"] == "generation" else ():
            sums[name] += Decimal(((entries[-1] if "leaf" in line else line) | {"requests": 1}).get(name) or 0)
    check_sequence(sorted(entries, key=lambda entry: int(entry["ledger_seq"])), total)
    for name, computed in sums.items():
        if Decimal(total.get(name, computed)) != computed:
            raise Fault(f"the total of {name} is {total[name]}, the lines add up to {computed}")
    return f"{len(entries)} entries, {sums['cost']} {total['currency']} of usage, in a log of {checkpoint.size} leaves"


def check_sequence(entries: list[Fields], total: Fields) -> None:
    """Checks that the account's entries are of the period and have no gap, and that each balance is right."""
    balance, credited, follows = Decimal(total["opening_balance"]), Decimal(0), None
    for entry in entries:
        seq, amount, own = int(entry["ledger_seq"]), Decimal(entry["amount"]), (entry["account"], entry.get("previous"))
        if (seq, *own) != (follows or (seq, *own)) or (seq == 1) == ("previous" in entry):
            raise Fault(f"entry {seq} does not follow the one before it: an entry is missing, or was changed")
        if not total["since"] <= entry["created_at"] <= total["until"] or entry["currency"] != total["currency"]:
            raise Fault(f"entry {seq} is not of the period and currency of the total")
        balance += amount
        if Decimal(entry["balance_after"]) != balance or (seq == 1 and amount != balance):
            raise Fault(f"entry {seq}: the balance is {entry['balance_after']} and comes out as {balance}")
        follows = (seq + 1, entry["account"], entry["hash"])
        credited += 0 if entry["kind"] == "usage" else amount
    if (Decimal(total["closing_balance"]), Decimal(total["credits"])) != (balance, credited):
        raise Fault(f"the closing balance is {total['closing_balance']}, the entries add up to {balance}")


def main() -> None:
    """Prints a line, or exits with the first fault and status 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("receipt", "export"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--key", action="append", required=True, help="a verifier key of the log; can be repeated")
    parser.add_argument("--witness", action="append", default=[], help="the key of a witness that must have cosigned")
    parser.add_argument("--checkpoint", type=Path, help="a checkpoint of this log that was saved before")
    given = parser.parse_args()
    if given.kind == "export" and given.checkpoint is None:
        parser.error("an export is verified against a saved --checkpoint")
    try:
        saved = given.checkpoint and read_checkpoint(given.checkpoint.read_text(encoding="utf-8"), given.key, [])
        with given.file.open(encoding="utf-8") as file:
            verify = verify_receipt if given.kind == "receipt" else verify_export
            sys.stdout.write(f"{verify(file, given.key, given.witness, saved)}\n")
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        words = str(error) if isinstance(error, Fault) else f"a file or a key cannot be read: {error!r}"
        sys.exit("FAULT: " + "".join(filter(str.isprintable, words)))


if __name__ == "__main__":
    main()
