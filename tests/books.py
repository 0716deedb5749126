"""Compares three books: what clients sent and received, what the upstream counted, and what the ledger has.

Each record is joined to one request: by the marker that the request carries and its upstream repeats in its usage; if
the upstream reported no usage, by the id that the client received; and if the client received no head, by the time in
the record's id, among the requests of that key and model that reached the upstream.

Costs are computed here, in plain Decimal, from the catalogue files that were in force and the reported usage, so that a
fault in the product's own arithmetic is noticed.
"""

import itertools
import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any, NamedTuple

from tests import bills
from tests.chat import HELLO
from tests.inference.stream_clients import partial_stream
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]
Figures = Counter[str]
MOVING = "test/echo"  # the target of the one alias, before and after it is moved

DELIVERED_PART_BILLED = "What was delivered is billed."
AT_MOST_ONCE = "billed once at most"
NOTHING = "Nothing was billed"
# If a worker is killed within this time after a client left, it may not have settled yet: it waits twelve seconds for a
# lost database, and notices within one that a client has left. The bound is generous because it only excuses missing
# records.
SETTLED_SECONDS = 30.0
# A request whose client has left may be read only when its worker resumes, or the database is back.
READ_SECONDS = 60.0
# When a client resets its connection, its kernel may hold bytes that the client has not read: one piece, if pieces are
# sent one by one.
PIECE_BYTES = 8
MILLION, RATE_PLACES = Decimal(10**6), 12
BUCKETS = ("uncached_prompt_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
# Each bucket is billed at the first of these prices that the catalogue states.
PRICES = (
    ("prompt",),
    ("cache_read", "prompt"),
    ("cache_write", "prompt"),
    ("cache_write_1h", "cache_write", "prompt"),
)


class Costs(NamedTuple):
    """Holds the rates and costs that a catalogue gives for a record, in units of the table."""

    account_rate: int
    eur_rate: int
    prompt_cost: int
    completion_cost: int
    cost: int
    cost_eur: int


FROZEN = "coalesce(t.{0}, g.{0})"  # whole records of an earlier release have no terms
QUERY = f"""
SELECT g.id, k.last_four, g.provider, g.model, g.region, g.dialect, g.ending, g.usage_estimated, g.upstream_usage,
    {", ".join(f"g.{name}" for name in BUCKETS)}, g.completion_tokens,
    {FROZEN.format("price_currency")}, g.currency, {FROZEN.format("account_rate")}, {FROZEN.format("eur_rate")},
    {", ".join(f"g.{name}" for name in Costs._fields[2:])},
    count(l.id)
FROM billing_generation g JOIN accounts_apikey k ON k.id = g.key_id
    LEFT JOIN billing_frozenterms t ON t.id = g.terms_id LEFT JOIN billing_ledgerentry l ON l.generation_id = g.id
WHERE g.account_id IN ({{}})
GROUP BY g.id, k.id, t.id
"""


class Leaving(NamedTuple):
    """Holds after how many received bytes a client leaves, and whether it does so with a reset."""

    after: int
    by_reset: bool


@dataclass(slots=True)
class SentRequest:
    """Holds one request and what its client received; `status` is None if no head arrived.

    Times are wall-clock times. `usage` is the usage at the end, `errors` are the messages of errors, `paced` is true if
    the answer is sent piece by piece.
    """

    marker: int
    key: str
    model: str
    words: int  # of the prompt
    streamed: bool
    port: int
    began: float
    ended: float = 0.0
    paced: bool = False
    left: Leaving | None = None
    status: int | None = None
    id: str | None = None
    whole: bool = False
    text: str = ""
    usage: Json | None = None
    errors: str = ""

    def keep(self, content: bytes, *, at_end: bool) -> None:
        """Stores the part of the answer's body that has arrived; `at_end` means that it is complete."""
        if self.status != 200:
            self.errors = content.decode(errors="replace")
        elif self.streamed:
            stream = partial_stream("", content)
            self.whole, self.text, self.usage = stream.done, stream.text, stream.usage
            self.errors = " ".join(stream.messages)
        elif at_end:
            answer = json.loads(content)
            self.whole, self.text, self.usage = True, answer["choices"][0]["message"]["content"], answer["usage"]

    @property
    def canonical(self) -> str:
        """Returns the model's id without its provider, as records have it."""
        return MOVING if self.model == "alias/moving" else self.model.split("/", 1)[1]


def markers() -> "itertools.count[int]":
    """Counts from a number that no other test uses, because several tests may share an upstream."""
    return itertools.count(time.time_ns() // 1000)


def marked(marker: int, words: int) -> list[Json]:
    """Builds messages of `words` words, one of which is the marker."""
    return [{"role": "system", "content": " ".join([f"<marker>{marker}</marker>", *["word"] * (words - 3)])}, *HELLO]


class Record(NamedTuple):
    """Holds one row of `billing_generation` and the number of its ledger entries."""

    id: str
    key: str
    provider: str
    model: str
    region: str
    dialect: str | None
    ending: str
    estimated: bool
    upstream_usage: str | None
    uncached: int
    cache_read: int | None
    write_5m: int | None
    write_1h: int | None
    completion: int
    price_currency: str
    currency: str
    account_rate: int
    eur_rate: int
    prompt_cost: int | None
    completion_cost: int | None
    cost: int | None
    cost_eur: int | None
    entries: int

    @property
    def usage(self) -> Json | None:
        return json.loads(self.upstream_usage) if self.upstream_usage else None

    @property
    def marker(self) -> int | None:
        return None if self.usage is None else self.usage.get("x_marker")

    @property
    def admitted_at(self) -> float:
        """Returns the time of admission, which is in the first 48 bits of the id, in milliseconds."""
        return int(self.id.removeprefix("gen-")[:12], 16) / 1000

    @property
    def buckets(self) -> tuple[int, ...]:
        counted = (self.uncached, self.cache_read, self.write_5m, self.write_1h, self.completion)
        return tuple(tokens or 0 for tokens in counted)


@dataclass(frozen=True, slots=True)
class LossPeriod:
    """Marks a period in which an outcome may be lost: a worker is killed, or both database and disk are unavailable.

    It applies to the gateway at this port, or to all gateways.
    """

    port: int | None
    began: float
    ended: float

    def may_excuse(self, asked: SentRequest) -> bool:
        return (
            self.port in (None, asked.port)
            and self.began <= asked.ended + SETTLED_SECONDS
            and asked.began <= self.ended
        )


@dataclass(frozen=True, slots=True)
class SeededCatalogue:
    """Holds a catalogue file and when its seeding began: requests admitted earlier were not priced by it."""

    began: float
    catalogue: Json


@dataclass
class Books:
    """Holds what clients sent, the failures they were exposed to, and what the operator set."""

    asked: list[SentRequest]
    tariffs: Sequence[SeededCatalogue]
    losses: Sequence[LossPeriod] = ()
    called: Mapping[int, int] | None = None  # calls by marker, as the upstream counted them; None: not counted
    figures: Figures = field(default_factory=Figures)
    wrong: list[str] = field(default_factory=list)

    def compare(self, records: Sequence[Record]) -> None:
        """Fills `figures` and `wrong`."""
        self.figures.update(requests=len(self.asked), records=len(records))
        self.figures["answers"] = sum(each.status == 200 for each in self.asked)
        self._look_at_calls()
        joined = self._joined(records)
        for each in self.asked:
            record = joined.get(each.marker)
            if record is None:
                kind = self._unbilled(each)
                if kind.startswith("lost"):
                    self.wrong.append(f"{each} was {kind}")
            else:
                kind = self._billed(each, record)
                self._look_at_tokens(each, record)
                self._look_at_costs(record)
            self.figures[kind] += 1

    def _look_at_calls(self) -> None:
        """Checks that the upstream was called once for each request, and for nothing else."""
        if self.called is None:
            return
        self.figures["calls of the upstream"] = sum(self.called.values())
        known = {each.marker for each in self.asked}
        self.wrong += [
            f"the upstream received a request with {marker}, which no client sent"
            for marker in self.called.keys() - known
        ]
        self.wrong += [f"the upstream received {m} {calls} times" for m, calls in self.called.items() if calls > 1]

    def _joined(self, records: Sequence[Record]) -> dict[int, Record]:
        """Returns each request's record, by the request's marker."""
        by_marker = {each.marker: each for each in self.asked}
        by_id = {each.id: each for each in self.asked if each.id is not None}
        joined = dict[int, Record]()
        left_over = list[Record]()
        for record in records:
            asked = by_id.get(record.id) if record.marker is None else by_marker.get(record.marker)
            if asked is None and record.marker is None:
                left_over.append(record)
            elif asked is None:
                self.wrong.append(f"{record} belongs to no request")
            elif asked.marker in joined:
                self.wrong.append(f"{asked} has two records: {joined[asked.marker].id} and {record.id}")
            else:
                joined[asked.marker] = record
                if asked.id not in (None, record.id):
                    self.wrong.append(f"{asked} received the id {asked.id} and is recorded as {record.id}")
        for record, asked in self._by_time(left_over, joined):
            if asked is None:
                self.wrong.append(f"{record} fits no request without a record")
            else:
                joined[asked.marker] = record
        if self.called is not None:
            self.wrong += [f"{joined[m].id} never reached the upstream" for m in joined if not self.called.get(m)]
        return joined

    def _by_time(
        self, records: Sequence[Record], joined: Mapping[int, Record]
    ) -> Iterator[tuple[Record, SentRequest | None]]:
        """Pairs each record whose upstream reported nothing with a request whose client received no head.

        The record that was admitted first takes the request that ended first, so that no record takes another's
        request.
        """
        waiting: defaultdict[tuple[str, str], list[SentRequest]] = defaultdict(list)
        for each in sorted(self.asked, key=lambda each: each.ended):
            is_called = self.called is None or each.marker in self.called
            if each.status is None and each.marker not in joined and is_called:
                waiting[each.key, each.canonical].append(each)
        for record in sorted(records, key=lambda record: record.admitted_at):
            candidates, at = waiting[record.key, record.model], record.admitted_at
            fitting = (each for each in candidates if each.began - 0.001 <= at <= each.ended + READ_SECONDS)
            asked = next(fitting, None)
            if asked is not None:
                candidates.remove(asked)
            yield record, asked

    def _unbilled(self, each: SentRequest) -> str:
        """Returns the reason why a request has no record."""
        gone, has_bill = "left" if each.left else "cut", DELIVERED_PART_BILLED in each.errors or each.usage is not None
        kinds = (
            (each.status is None, "no answer, not billed"),
            (each.status != 200, "refused, not billed"),
            (each.whole, "lost: delivered whole and not billed"),
            (not each.streamed, "lost: its answer had begun, which is billed before"),
            (has_bill, "lost: the client received a bill, but none exists"),
            (AT_MOST_ONCE in each.errors, "cut and told that it is billed at most, not billed"),
            (not each.text, f"{gone} before any text, not billed"),
            (any(loss.may_excuse(each) for loss in self.losses), f"{gone} while a worker was killed, not billed"),
        )
        return next((kind for holds, kind in kinds if holds), f"lost: {gone} by itself, with text, and not billed")

    def _billed(self, each: SentRequest, record: Record) -> str:
        cost, wrong = record.cost, self.wrong
        if record.entries != (cost is not None):
            wrong.append(f"{record.id} has {record.entries} ledger entries")
        if each.status is None:
            return "billed, of which no head arrived" if cost is not None else "without a head or a cost"
        if each.status != 200:
            if cost is not None and AT_MOST_ONCE not in each.errors:
                wrong.append(f"{each} was refused and is billed as {record.id}")
            return "refused, recorded without a cost" if cost is None else "refused, billed at most"
        if NOTHING in each.errors and cost is not None:
            wrong.append(f"{each} was told that nothing was billed, but is billed as {record.id}")
        if each.whole and record.ending in ("finished", "stalled"):
            if each.usage is None:
                wrong.append(f"{each} is whole but has no usage")
                return "whole, without usage"
            if cost is None or Decimal(cost).scaleb(-bills.PLACES) != bills.exact(each.usage["cost"]):
                wrong.append(f"{each.id} received the cost {each.usage['cost']} and was billed {cost}")
            return "whole, billed once" + ("" if "remaining_balance" in each.usage else ", without a balance")
        if each.whole:
            wrong.append(f"{each.id} was delivered whole but is recorded as {record.ending}")
        if each.left and each.left.by_reset and not each.paced:
            return f"reset in a burst, billed as {record.ending}"
        delivered = len(each.text.encode()) + (PIECE_BYTES if each.left else 0)
        if each.streamed and record.estimated and cost is not None and record.completion > -(-delivered // 4):
            wrong.append(f"{each} was billed {record.completion} tokens")
        return f"cut, billed as {record.ending}"

    def _look_at_tokens(self, each: SentRequest, record: Record) -> None:
        """Checks that the tokens are those that the upstream reported and match the words sent and received."""
        if record.cost is None:
            return
        provider = each.model.split("/")[0]
        if record.model != each.canonical or provider not in (record.provider, "alias", "auto"):
            self.wrong.append(f"{each} was served by {record.provider}/{record.model}")
        reported = None if record.usage is None else reported_buckets(record.usage)
        if reported is not None:
            self.figures["recorded with the upstream's usage"] += 1
            if reported[:4] != record.buckets[:4] or (not record.estimated and reported != record.buckets):
                self.wrong.append(f"{record.id}: {record.buckets} tokens, the upstream reported {reported}")
        if record.estimated:
            return
        if record.uncached != each.words:
            self.wrong.append(f"{record.id}: {record.uncached} uncached tokens, its prompt has {each.words} words")
        if each.whole and record.completion != len(each.text.split()):
            self.wrong.append(f"{record.id}: {record.completion} tokens for {each.text!r}")

    def _look_at_costs(self, record: Record) -> None:
        """Checks that the costs follow from one of the catalogues that may have been in force at admission."""
        if record.cost is None:
            return
        stored = tuple(getattr(record, name) for name in Costs._fields)
        in_force = [each.catalogue for each in self.tariffs if each.began <= record.admitted_at]
        expected = [costs_of(catalogue, record) for catalogue in in_force]
        if stored not in expected:
            self.wrong.append(f"{record}: its catalogue gives {expected}")
        self.figures["recomputed from the catalogue"] += 1
        self.figures["of these in another currency than the price's"] += record.price_currency != record.currency
        self.figures["of these with cached or written tokens"] += any(record.buckets[1:4])


def records_of(gateway: GatewayServer, *accounts: str) -> list[Record]:
    """Returns all records of these accounts."""
    query, where = QUERY.format(", ".join(["%s"] * len(accounts))), list(map(bills.hex_of, accounts))
    return [Record(f"gen-{uuid.UUID(str(row[0])).hex}", *row[1:]) for row in gateway.query(query, where)]


def reported_buckets(usage: Json) -> tuple[int, ...] | None:
    """Returns the reported tokens: plain prompt, cached, written for 5 minutes, written for an hour, and completion."""
    if "input_tokens" in usage:
        written = usage.get("cache_creation") or {}
        ours = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
        parts = (usage["input_tokens"], usage["cache_read_input_tokens"], *(written.get(name, 0) for name in ours))
        return (*parts, usage["output_tokens"])
    if "prompt_tokens" not in usage:
        return None
    details = usage.get("prompt_tokens_details") or {}
    cached, written = details.get("cached_tokens", 0), details.get("cache_write_tokens", 0)
    if cached + written > usage["prompt_tokens"]:  # the details are wrong: bill it all as plain prompt
        cached = written = 0
    return (usage["prompt_tokens"] - cached - written, cached, written, 0, usage["completion_tokens"])


def costs_of(catalogue: Json, record: Record) -> Costs | None:
    """Returns the rates and costs that a record should have, or None if the catalogue has no such route.

    Rates are rounded once, to 12 digits. Each part is computed exactly from them and rounded once, in each currency.
    """
    with localcontext(prec=60):
        price = _price_of(catalogue, record)
        if price is None or price["currency"] != record.price_currency:
            return None
        tokens = record.buckets
        tiers = [tier for tier in price.get("tiers", ()) if sum(tokens[:4]) > tier["above_prompt_tokens"]]
        stated = max(tiers, key=lambda tier: int(tier["above_prompt_tokens"]), default=price)

        def per_token(*names: str) -> Decimal:
            found = next(stated[f"{name}_per_1m_tokens"] for name in names if f"{name}_per_1m_tokens" in stated)
            return Decimal(str(found)) / MILLION

        prompt = sum((count * per_token(*names) for count, names in zip(tokens, PRICES, strict=False)), Decimal(0))
        completion = tokens[4] * per_token("completion") if tokens[4] else Decimal(0)
        units_per_eur = {name: Decimal(str(rate)) for name, rate in catalogue["exchange_rates"]["rates"].items()}
        units_per_eur["EUR"] = Decimal(1)
        in_eur = 1 / units_per_eur[record.price_currency]
        rate = in_eur * units_per_eur[record.currency] if record.currency != record.price_currency else Decimal(1)
        account_rate, eur_rate = _units(rate, RATE_PLACES), _units(in_eur, RATE_PLACES)
        own, eur = (
            [_units(part * _rate(units)) for part in (prompt, completion)] for units in (account_rate, eur_rate)
        )
        return Costs(account_rate, eur_rate, own[0], own[1], sum(own), sum(eur))


def _price_of(catalogue: Json, record: Record) -> Json | None:
    for entry in catalogue["models"]:
        if (entry["provider"], entry["id"]) == (record.provider, record.model):
            regions = {region["locode"]: region for region in entry.get("regions") or [{"locode": "global"}]}
            if record.region in regions:
                price: Json | None = regions[record.region].get("pricing", entry.get("pricing"))
                return price
    return None


def _rate(units: int) -> Decimal:
    return Decimal(units).scaleb(-RATE_PLACES)


def _units(amount: Decimal, places: int = bills.PLACES) -> int:
    return int(amount.scaleb(places).to_integral_value(ROUND_HALF_EVEN))
