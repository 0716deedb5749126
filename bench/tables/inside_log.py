"""Holds the part of `bench.transparency_log` that runs in Django, on the measured database."""

import json
import statistics
import time
from uuid import UUID

from django.db import connection

from billing.models import Generation, LedgerEntry, Wallet
from proof import receipts, sequencer
from proof.log_key import LogKey
from proof.models import Leaf
from tests.billing import records

ORIGIN = "bench.example/log"
RECEIPTS = 500
# Copies the first record and its entry. Ids are UUIDs of version 7, like the product's.
COPY_RECORDS = """
INSERT INTO billing_generation ({columns})
SELECT (lpad(to_hex((extract(epoch FROM created_at) * 1000)::bigint + n), 12, '0') || '7' || substr(md5(n::text), 1, 3)
    || '8' || substr(md5(n::text), 5, 15))::uuid, created_at + n * interval '1 millisecond', {others}
FROM billing_generation, generate_series(1, %s) AS n WHERE id = %s
"""
COPY_ENTRIES = """
INSERT INTO billing_ledgerentry (account_id, seq, kind, amount, balance_after, generation_id, reference, created_at)
SELECT account_id, %s + row_number() OVER (ORDER BY created_at, id), 'usage', -cost, balance_after, id, NULL, created_at
FROM billing_generation WHERE id <> %s
"""
SIZES = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'proof\\_%%' AND relkind = 'r'"


def run(entries: int) -> None:
    """Fills the database with entries, appends them to a log, and prints the figures as JSON. It runs in Django."""
    # 1. Entries.
    record = records.serve(records.open_for(name="Bench", credit="1000000"))
    _copy(record, entries)
    # 2. Appending.
    key = LogKey.new(ORIGIN)
    start = time.perf_counter()
    while sequencer.append(key):
        pass
    appended = Leaf.objects.count() / (time.perf_counter() - start)
    sequencer.sign(key)
    sequencer.publish(key)
    # 3. Receipts of entries anywhere in the log.
    chosen = range(2, entries, max(1, entries // RECEIPTS))
    ids = LedgerEntry.objects.filter(seq__in=chosen).values_list("generation_id", flat=True)
    took = [_receipt_ms(identifier) for identifier in list(ids) if identifier is not None]
    with connection.cursor() as cursor:
        cursor.execute(SIZES)
        size = int(cursor.fetchone()[0])
    figures = {"appended": appended, "receipt_ms": statistics.median(took), "bytes": size / Leaf.objects.count()}
    print(json.dumps(figures))


def _receipt_ms(generation_id: UUID) -> float:
    start = time.perf_counter()
    receipt = receipts.receipt_of(generation_id)
    assert receipt is not None
    receipt.body("gen")
    return 1000 * (time.perf_counter() - start)


def _copy(record: Generation, entries: int) -> None:
    """Copies the record and its entry by SQL, without triggers, which would look up the same account each time."""
    others = [field.column for field in Generation._meta.concrete_fields if field.name not in ("id", "created_at")]
    columns = ", ".join(f'"{each}"' for each in ("id", "created_at", *others))
    booked = record.ledger_entry
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        insert = COPY_RECORDS.format(columns=columns, others=", ".join(f'"{each}"' for each in others))
        cursor.execute(insert, [entries, record.pk])
        cursor.execute(COPY_ENTRIES, [booked.seq, record.pk])
        cursor.execute("SET session_replication_role = DEFAULT")
        for name in ("billing_generation", "billing_ledgerentry"):
            cursor.execute(f"VACUUM ANALYZE {name}")
    Wallet.objects.filter(pk=record.account_id).update(seq=booked.seq + entries)
