"""Three books of one time: what clients saw, what the upstream counted, what the ledger has."""

from collections import Counter
from decimal import Decimal

from tests import bills
from tests.servers.gateway import GatewayServer
from tests.soak.clients import Crowd, Received

RECORDS = """
SELECT g.id, g.ending, g.usage_estimated, g.completion_tokens, g.cost, count(l.id)
FROM billing_generation g LEFT JOIN billing_ledgerentry l ON l.generation_id = g.id
GROUP BY g.id, g.ending, g.usage_estimated, g.completion_tokens, g.cost
"""
# The kernel of a client that resets may have taken what the client has not read: one piece where they come one by one.
PACED = ("sim/test/brief", "sim/test/long")
PIECE_BYTES = 8
Figures = Counter[str]


def compared(gateway: GatewayServer, crowd: Crowd, upstream: dict[str, int]) -> tuple[Figures, list[str]]:
    """Figures of all three, and their contradictions.

    Every answer whose last byte arrived is billed once, as it said; whoever was told of a bill has one; nothing is
    billed beyond what arrived (of a client that left: and one piece, which it has in part; of one that reset its
    connection only where pieces come one by one); each record is of one call of the upstream, and each call of one
    request.
    """
    records = {f"gen-{row[0].hex}": row[1:] for row in gateway.query(RECORDS)}
    figures, wrong = Figures(requests=crowd.asked, answers=len(crowd.received), records=len(records)), list[str]()
    figures["calls of the upstream"] = upstream["calls"]
    finished = sum(row[0] == "finished" for row in records.values())
    if not (finished <= upstream["calls"] - upstream["cut"] and len(records) <= upstream["calls"] <= crowd.asked):
        wrong.append(f"{crowd.asked} requests, {upstream} at the upstream, {len(records)} records, {finished} finished")
    if upstream["open"]:
        wrong.append(f"{upstream['open']} calls are still open")
    for each in crowd.received:
        found = records.pop(each.id, None)
        if found is None:
            kind = _unbilled(each)
            figures[kind] += 1
            if kind.startswith("lost"):
                wrong.append(f"{each} was {kind}")
        else:
            figures[_billed(each, found, wrong)] += 1
    # Whole answers are settled before their first byte, and the head of a stream may be lost with its worker.
    figures["billed, of which no head arrived"] = len(records)
    return figures, wrong


def _unbilled(each: Received) -> str:
    if each.whole:
        return "lost: delivered whole and not billed"
    if each.told_of_the_bill:
        return "lost: told of a bill that is none"
    return "cut before a checkpoint, not billed"


def _billed(each: Received, found: tuple[str, bool, int, int | None, int], wrong: list[str]) -> str:
    ending, estimated, tokens, cost, entries = found
    if entries != (cost is not None):
        wrong.append(f"{each.id} has {entries} entries of the ledger")
    if each.whole and ending in ("finished", "stalled"):
        assert each.usage is not None
        if cost is None or Decimal(cost).scaleb(-bills.PLACES) != bills.exact(each.usage["cost"]):
            wrong.append(f"{each.id} was told {each.usage['cost']} and billed {cost}")
        return "whole, billed once" + ("" if "remaining_balance" in each.usage else ", without a balance")
    if each.whole:
        wrong.append(f"{each.id} was delivered whole and is {ending}")
    if each.left and each.left.by_reset and each.model not in PACED:
        return f"reset in a burst, billed as {ending}"
    delivered = each.text_bytes + (PIECE_BYTES if each.left else 0)
    if each.streamed and estimated and cost is not None and tokens > -(-delivered // 4):
        wrong.append(f"{each} was billed {tokens} tokens")
    return f"cut, billed as {ending}"
