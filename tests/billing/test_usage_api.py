"""A management key reads the ledger and the usage of its account, equal to the records (docs/management.md)."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from tests import bills, managing
from tests.chat import answer, ask
from tests.conftest import OpenAccount
from tests.envelope import refusal
from tests.patience import eventually
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]


@pytest.fixture
def customer(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(gateway)


@pytest.fixture
def management(customer: Customer) -> Iterator[GatewaySession]:
    yield managing.managing(customer)
    managing.close_all()


def rows(management: GatewaySession, **query: str) -> list[Json]:
    reply = management.get("/v1/usage", params=query)
    assert reply.status_code == 200, reply.text
    found: list[Json] = reply.json()["data"]
    return found


def moments(management: GatewaySession) -> list[datetime]:
    """Returns when the account's usage entries were written."""
    entries = management.get("/v1/ledger", params={"kind": "usage"}).json()["data"]
    return [datetime.fromisoformat(entry["created_at"]) for entry in entries]


def requests_by(found: list[Json], group: str) -> dict[str | None, int]:
    """Sums the requests of each value of the group, since a test may run while an hour ends."""
    sums: Counter[str | None] = Counter()
    for row in found:
        sums[row[group]] += row["requests"]
    return dict(sums)


def total(found: list[Json], figure: str) -> Decimal:
    return sum((Decimal(row.get(figure, 0)) for row in found), Decimal(0))


def test_the_ledger_has_every_entry_once_in_pages_newest_first(customer: Customer, management: GatewaySession) -> None:
    for _ in range(3):
        answer(customer, "echo")
    customer.gateway.manage("grant_credit", customer.name, "5", "--reference", "inv-1", "--reason", "thanks").ok()
    found: list[Json] = []
    cursor: dict[str, str] = {}
    while True:
        page = management.get("/v1/ledger", params={"limit": "2"} | cursor).json()
        found += page["data"]
        if "next_cursor" not in page:
            break
        cursor = {"after": page["next_cursor"]}
    assert [entry["seq"] for entry in found] == [5, 4, 3, 2, 1]
    assert [entry["kind"] for entry in found] == ["grant", "usage", "usage", "usage", "grant"]
    assert (found[0]["amount"], found[0]["reference"], found[0]["reason"]) == ("5.00", "inv-1", "thanks")
    assert sum(Decimal(entry["amount"]) for entry in found) == Decimal(found[0]["balance_after"])
    ids = {record["generation_id"] for record in customer.http.get("/v1/generations").json()["data"]}
    assert {entry["generation_id"] for entry in found} - {None} == ids


def test_the_ledger_is_narrowed_by_kind_and_time(customer: Customer, management: GatewaySession) -> None:
    answer(customer, "echo")
    answer(customer, "echo")
    newest, second, first = management.get("/v1/ledger").json()["data"]
    for query, expected in (
        ({"kind": "usage"}, [newest, second]),
        ({"kind": "grant"}, [first]),
        ({"kind": "correction"}, []),
        ({"since": second["created_at"]}, [newest, second]),
        ({"until": second["created_at"]}, [second, first]),
        ({"since": second["created_at"], "until": second["created_at"]}, [second]),
        ({"until": "2020-01-01T00:00:00Z"}, []),
        ({"until": "9999-12-31T23:59:59.999999Z"}, [newest, second, first]),
        ({"since": "2100-01-01T00:00:00Z"}, []),
    ):
        assert management.get("/v1/ledger", params=query).json()["data"] == expected, query


def test_a_cursor_belongs_to_its_list_and_its_filters(customer: Customer, management: GatewaySession) -> None:
    answer(customer, "echo")
    answer(customer, "echo")
    cursor = management.get("/v1/ledger", params={"kind": "usage", "limit": "1"}).json()["next_cursor"]
    again = management.get("/v1/ledger", params={"kind": "usage", "limit": "5", "after": cursor})
    assert len(again.json()["data"]) == 1
    for path, query in (
        ("/v1/ledger", {}),
        ("/v1/ledger", {"kind": "grant"}),
        ("/v1/ledger", {"kind": "usage", "since": "2026-01-01T00:00:00Z"}),
        ("/v1/audit", {}),
        ("/v1/keys", {}),
    ):
        refused = refusal(management.get(path, params=query | {"after": cursor}))
        assert (refused.status, refused.param) == (400, "after"), (path, query)


@pytest.mark.parametrize(
    ("path", "query", "param"),
    [
        ("/v1/ledger", {"kind": "gift"}, "kind"),
        ("/v1/ledger", {"since": "yesterday"}, "since"),
        ("/v1/ledger", {"limit": "0"}, "limit"),
        ("/v1/ledger", {"after": "x"}, "after"),
        ("/v1/usage", {"bucket": "week"}, "bucket"),
        ("/v1/usage", {"group_by": "key,colour"}, "group_by"),
        ("/v1/usage", {"group_by": "key,key"}, "group_by"),
        ("/v1/usage", {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}, "until"),
        ("/v1/usage", {"since": "2026-01-01T00:00:00Z", "until": "2026-03-01T00:00:00Z", "bucket": "hour"}, "since"),
        ("/v1/usage", {"since": "1970-01-01T00:00:00Z"}, "since"),
        ("/v1/usage", {"since": "2026-01-01T00:00:00Z", "until": "9999-01-01T00:00:00Z"}, "until"),
        ("/v1/usage", {"since": "0001-01-01T00:00:00Z", "until": "0001-01-02T00:00:00Z"}, "since"),
        ("/v1/usage", {"since": "9999-12-31T00:00:00Z", "until": "9999-12-31T23:59:59Z"}, "since"),
    ],
    ids=str,
)
def test_a_fault_of_a_query_names_its_field(
    management: GatewaySession, path: str, query: dict[str, str], param: str
) -> None:
    refused = refusal(management.get(path, params=query))
    assert (refused.status, refused.param) == (400, param)


@pytest.mark.parametrize("bucket", ["hour", "day", "month"])
def test_usage_adds_up_to_the_records(customer: Customer, management: GatewaySession, bucket: str) -> None:
    customer.gateway.manage("set_tags", customer.name, "--key", "test", "--tag", "team=hr", "--tag", "env=prod").ok()
    answer(customer, "echo")
    answer(customer, "echo", stream=False)
    answer(customer, "cached")
    customer.http.post("/v1/aliases", json={"name": "fast", "target": "sim/test/echo/FRPAR"}).raise_for_status()
    answer(customer, "alias/fast")
    records, written = bills.records(customer), moments(management)
    costs = sum((record.cost or Decimal(0) for record in records), Decimal(0))
    for group in ("", "key", "model", "provider", "region", "alias", "endpoint", "key,model,alias"):
        found = rows(management, bucket=bucket, **({"group_by": group} if group else {}))
        assert total(found, "requests") == 4, group
        assert total(found, "cost") == costs
        assert total(found, "prompt_tokens") == sum(record.prompt_tokens for record in records)
        assert total(found, "completion_tokens") == sum(record.completion_tokens for record in records)
        expected = {"start", "end", "requests", "prompt_tokens", "completion_tokens"}
        for row in found:
            assert row.keys() >= expected | {*filter(None, group.split(","))}
            start, end = datetime.fromisoformat(row["start"]), datetime.fromisoformat(row["end"])
            assert [moment for moment in written if start <= moment < end], row
    by_alias = rows(management, bucket=bucket, group_by="alias")
    assert requests_by(by_alias, "alias") == {None: 3, "alias/fast": 1}
    (by_key,) = {str(row["key"]) for row in rows(management, bucket=bucket, group_by="key")}
    assert "'name': 'test'" in by_key
    assert {row["model"] for row in rows(management, bucket=bucket, group_by="model")} == {
        "sim/test/echo",
        "sim/test/cached",
    }
    assert {row["endpoint"] for row in rows(management, bucket=bucket, group_by="endpoint")} == {"chat"}
    by_tag = rows(management, bucket=bucket, group_by="tag")
    assert requests_by(by_tag, "tag") == {"team=hr": 4, "env=prod": 4}
    cached = [row for row in rows(management, bucket=bucket, group_by="model") if row["model"] == "sim/test/cached"]
    assert total(cached, "cached_tokens") > 0


def test_failures_are_counted_apart_and_not_by_hours(customer: Customer, management: GatewaySession) -> None:
    assert ask(customer, "no-such-model").status_code == 404
    assert eventually(lambda: total(rows(management), "failures") == 1)
    (row,) = rows(management, group_by="endpoint,key")
    assert (row["requests"], row["failures"], row["endpoint"]) == (0, 1, "chat")
    assert "cost" not in row
    assert rows(management, bucket="hour") == []


def test_served_and_failed_requests_without_an_alias_are_in_one_group(
    customer: Customer, management: GatewaySession
) -> None:
    answer(customer, "echo")
    assert ask(customer, "no-such-model").status_code == 404
    assert eventually(lambda: total(rows(management), "failures") == 1)
    found = rows(management, group_by="alias")
    assert total(found, "requests") == total(found, "failures") == 1
    assert len({(row["start"], row["alias"]) for row in found}) == len(found)


@pytest.mark.parametrize("away", [-1, 1], ids=["earlier", "later"])
def test_an_hour_has_only_its_own_requests(customer: Customer, management: GatewaySession, away: int) -> None:
    answer(customer, "echo")
    (written,) = moments(management)
    hour = written.replace(minute=0, second=0, microsecond=0)
    for start, requests in ((hour, 1), (hour + timedelta(hours=away), 0)):
        asked = {"since": start.isoformat(), "until": (start + timedelta(hours=1)).isoformat()}
        assert total(rows(management, bucket="hour", **asked), "requests") == requests


def test_whole_buckets_are_answered(management: GatewaySession) -> None:
    query = {"since": "2026-03-10T10:20:00+02:00", "until": "2026-03-12T00:00:01Z"}
    for bucket, since, until in (
        ("hour", "2026-03-10T08:00:00", "2026-03-12T01:00:00"),
        ("day", "2026-03-10T00:00:00", "2026-03-13T00:00:00"),
        ("month", "2026-03-01T00:00:00", "2026-04-01T00:00:00"),
    ):
        body = management.get("/v1/usage", params=query | {"bucket": bucket}).json()
        assert (body["since"][:19], body["until"][:19], body["data"]) == (since, until, [])
    body = management.get("/v1/usage").json()
    asked = datetime.fromisoformat(body["until"]) - datetime.fromisoformat(body["since"])
    assert timedelta(days=30) <= asked <= timedelta(days=32)
    assert body["currency"] == "EUR"
