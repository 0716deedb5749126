"""The recipe of docs/growth.md that partitions the records, run as it stands: it must leave out nothing."""

import re
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.utils import timezone

from billing.models import Generation
from billing.verify import Verification, verify
from inference.dialects import read_usage
from tests.billing.records import open_for, serve
from tests.servers.process import ROOT

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.postgres_is_enough,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no partitions"),
]
RECIPE = (ROOT / "docs" / "growth.md").read_text().split("1. While traffic goes on")[1].split("Then, each month")[0]
END_OF_THE_FIRST_MONTH = "01a2ce8b-d400-0000-0000-000000000000"
FOREIGN_KEY = "SELECT conname FROM pg_constraint WHERE confrelid = 'billing_generation'::regclass"
INDEXES = "SELECT replace(indexdef, ' ONLY ', ' ') FROM pg_indexes WHERE tablename = 'billing_generation'"
CONSTRAINTS = """
    SELECT pg_get_constraintdef(oid) FROM pg_constraint
    WHERE 'billing_generation'::regclass IN (conrelid, confrelid) AND conparentid = 0
"""


def test_partitions_keep_every_index_and_constraint_and_records_go_on_being_settled() -> None:
    account, now = open_for(), timezone.now()
    serve(account)
    defined = {query: rows(query) for query in (INDEXES, CONSTRAINTS)}
    follow(first=bound(now + timedelta(days=1)), end=bound(now + timedelta(days=31)))
    assert {query: rows(query) for query in (INDEXES, CONSTRAINTS)} == defined
    adopted = rows("SELECT indexname FROM pg_indexes WHERE tablename = 'billing_generation_old'")
    assert len(adopted) == len(defined[INDEXES])
    serve(account)
    serve(account, id=bound(now + timedelta(days=2)))
    assert rows("SELECT count(*) FROM billing_generation_2026_12") == ["1"]
    assert Generation.objects.filter(account=account).count() == 3
    (proof,) = verify(account.pk, read_usage)
    assert isinstance(proof, Verification)


def follow(*, first: UUID, end: UUID) -> None:
    """Runs every statement of the recipe, in this test's own transaction."""
    (foreign_key,) = rows(FOREIGN_KEY)
    values = {":'first'": f"'{first}'", ":fk": f'"{foreign_key}"', END_OF_THE_FIRST_MONTH: str(end)}
    script = re.sub(
        "|".join(values), lambda found: values[found[0]], "".join(re.findall(r"```sql(.*?)```", RECIPE, re.DOTALL))
    )
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for statement in filter(None, map(str.strip, script.split(";"))):
            if statement not in ("BEGIN", "COMMIT"):
                cursor.execute(statement)


def bound(moment: datetime) -> UUID:
    """The least id of that moment."""
    return UUID(int=int(moment.timestamp() * 1000) << 80)


def rows(query: str) -> list[str]:
    """The one column of them, in order."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return sorted(str(row[0]) for row in cursor.fetchall())
