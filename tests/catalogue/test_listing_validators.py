"""The listing has ETags, so a client that has it already does not receive it again."""

from collections.abc import Callable

import pytest
from django.utils import timezone

from catalogue import models
from catalogue.routing import quota
from tests.catalogue import model, region
from tests.factories import forget_snapshot
from tests.listing import FILTERED, Read, catalogue
from tests.seeding import Seed

pytestmark = pytest.mark.django_db


def etag_of(read: Read, query: str = "") -> str:
    return read(f"/v1/models{query}").headers["ETag"]


KNOWN: list[Callable[[str], str]] = [
    lambda etag: etag,
    lambda etag: f"W/{etag}",
    lambda _: "*",
    lambda etag: f'"another", {etag}',
    lambda etag: f'W/"another",W/{etag} , "third"',
]
UNKNOWN: list[Callable[[str], str]] = [
    lambda _: '"another"',
    lambda _: 'W/"another", "third"',
    lambda etag: etag.strip('"'),
    lambda _: "",
]


@pytest.mark.parametrize("sent", KNOWN, ids=["strong", "weak", "any", "listed", "listed weak"])
def test_a_client_with_the_current_list_gets_a_304(seed: Seed, read: Read, sent: Callable[[str], str]) -> None:
    seed(catalogue(model("echo")))
    whole = read("/v1/models")
    response = read("/v1/models", If_None_Match=sent(whole.headers["ETag"]))
    assert (response.status_code, response.content) == (304, b"")
    same = ("ETag", "Cache-Control", "Content-Length")
    assert [response.headers[name] for name in same] == [whole.headers[name] for name in same]
    assert "Content-Type" not in response.headers


@pytest.mark.parametrize("sent", UNKNOWN, ids=["another", "others", "unquoted", "empty"])
def test_who_has_something_else_gets_it(seed: Seed, read: Read, sent: Callable[[str], str]) -> None:
    seed(catalogue(model("echo")))
    assert read("/v1/models", If_None_Match=sent(etag_of(read))).status_code == 200


def test_the_validator_is_strong_private_and_of_these_bytes(seed: Seed, read: Read) -> None:
    seed(FILTERED)
    responses = [read(f"/v1/models{query}") for query in ("", "?jurisdiction=eu-hosted", "?modality=chat")]
    assert len({response.headers["ETag"] for response in responses}) == 3
    assert all(response.headers["ETag"].startswith('"') for response in responses)
    assert {response.headers["Cache-Control"] for response in responses} == {"private, no-cache"}
    assert [etag_of(read)] == [response.headers["ETag"] for response in responses[:1]]


def test_the_validator_changes_with_the_catalogue_and_not_without(seed: Seed, read: Read) -> None:
    file = catalogue(model("echo"))
    seed(file)
    first = etag_of(read)
    forget_snapshot()
    assert etag_of(read) == first  # another worker, or this one after a restart
    file["models"][0]["name"] = "Echo 2"
    seed(file)
    assert etag_of(read) != first
    file["models"][0]["name"] = "Echo"
    seed(file)
    assert etag_of(read) == first


def test_the_validator_changes_with_a_spent_quota(seed: Seed, read: Read) -> None:
    seed(catalogue(model("echo", regions=[region("FRPAR", daily_token_quota=10), region("DEFRA")])))
    paris, today = models.Region.objects.get(locode="FRPAR"), timezone.now().date()
    first = etag_of(read)
    quota.count(paris.pk, 9, today)
    assert etag_of(read) == first
    quota.count(paris.pk, 1, today)
    assert etag_of(read) != first
    assert read("/v1/models", If_None_Match=first).status_code == 200
