"""Requests that no browser sends cause no error on any page, including the admin's."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.test import Client

from accounts.models import ApiKey
from catalogue.routing import snapshot
from tests import every_admin_page
from tests.dashboard.people import client_of
from tests.every_page import OWNER, VERBS, Acme
from tests.factories import forget_snapshot

pytestmark = pytest.mark.django_db

NUL, NOT_UTF8, HUGE, TOO_BIG = "a%00b", "%ff%fe", "9" * 40, str(2**63)
LONG = "x" * 300
JUNK = (NUL, NOT_UTF8, HUGE, TOO_BIG, LONG, "0001-01-01", "9999-12-31", "http://[")
# These are the parameters that each page reads in addition to the account; all other pages read only the account.
DAYS = ("since", "until", "days")
NARROWING = ("by", "key", "alias", "model", "region", "tag")
OF_LIST = ("outcome", "status", "code", "sort")
PARAMETERS = {
    "login": ("next",),
    "keys": ("before",),
    "credit": ("show", "before", "after", "since", "until"),
    "statement": ("since", "until", "format"),
    "usage": (*DAYS, *NARROWING),
    "usage-export": (*DAYS, *NARROWING),
    "carbon": (*DAYS, *NARROWING),
    "carbon-export": (*DAYS, *NARROWING),
    "usage-records": (*DAYS, *NARROWING, *OF_LIST, "before", "after", "q"),
    "usage-records-export": (*DAYS, *NARROWING, *OF_LIST),
    "usage-failure": (*DAYS, *NARROWING, *OF_LIST, "before", "after"),
    "usage-record": (*DAYS, *NARROWING, "before", "after"),
    "models": ("q", "jurisdiction", "modality", "provider", "storage", "transfer", "everything", "sort", "page"),
    "model": ("sort", "route", "everything"),
    "playground": ("model",),
}
WITH_OBJECTS = (
    *("/keys/{}/delete", "/members/{}", "/members/{}/remove", "/members/invitations/{}", "/invitations/{}", "/{}"),
    *(
        "/usage/records/{}",
        "/usage/failures/{}",
        "/aliases/{}",
        "/aliases/{}/delete",
        "/password/reset/{}/x",
        "/password/reset/MQ/{}",
    ),
)
FIELDS = "name expiry email role action target username password old_password new_password1 new_password2 next"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def acme() -> Iterator[Acme]:
    forget_snapshot()
    snapshot.refresh()
    yield Acme.open()
    forget_snapshot()


@pytest.fixture
def staff(acme: Acme) -> Client:
    """Signs in Acme's owner as staff, so that nothing is hidden."""
    person = acme.owner.user
    person.is_staff = person.is_superuser = True
    person.save()
    return client_of(OWNER)


def hurt(client: Client, *addresses: str, verb: str = "GET", body: bytes = b"", content_type: str = FORM) -> list[str]:
    """Returns the addresses that answer with a server error. All other effects of the requests are undone."""
    client.raise_request_exception = False
    found = []
    for address in addresses:
        with transaction.atomic():
            status = client.generic(verb, address, body, content_type=content_type).status_code
            transaction.set_rollback(True)
        if status >= 500:
            found.append(f"{verb} {address}")
    return found


def test_neither_an_address_nor_a_form_full_of_garbage_hurts(acme: Acme, staff: Client) -> None:
    """Each page gets one request per method for each of two kinds of garbage; the campaign sends the others."""
    for page in (page for page in acme.pages() if page.name != "logout"):
        names = PARAMETERS.get(page.name, ())
        asked = [f"{page.address}?{'&'.join(f'{name}={junk}' for name in names)}" for junk in (NUL, TOO_BIG)]
        form = "&".join(f"{name}={NUL}" for name in FIELDS.split()).encode()
        assert hurt(staff, *asked) + hurt(staff, page.address, verb="POST", body=form) == []
    tables = [table._meta for table in admin.site._registry]
    asked = [f"/admin/{table.app_label}/{table.model_name}/?q={NUL}&p={TOO_BIG}" for table in tables]
    assert hurt(staff, *asked, *(address.format(NUL) for address in WITH_OBJECTS)) == []


@pytest.mark.campaign
def test_no_parameter_of_a_page_hurts(acme: Acme, staff: Client) -> None:
    pages = [page for page in acme.pages() if page.name != "logout"]
    for page in pages:
        names = ("account", *PARAMETERS.get(page.name, ()))
        asked = [f"{page.address}?{name}={junk}&{name}={junk}" for name in names for junk in JUNK]
        assert hurt(staff, *asked, f"{page.address}?{NUL}={NUL}", f"{page.address}?{'a=1&' * 1500}") == []
    assert PARAMETERS.keys() <= {page.name for page in pages}


@pytest.mark.campaign
def test_no_object_in_an_address_hurts(acme: Acme, staff: Client) -> None:
    for address in WITH_OBJECTS:
        asked = [address.format(junk) for junk in (*JUNK, "MTA%3D", "AA")]
        assert hurt(staff, *asked) + hurt(staff, *asked, verb="POST") == []


@pytest.mark.campaign
def test_no_form_hurts(acme: Acme, staff: Client) -> None:
    pages = [page for page in acme.pages() if page.name != "logout"]
    for page in pages:
        for junk, action in ((NUL, "rename"), (NUL, "repoint"), (NOT_UTF8, "rename"), (LONG, "resend")):
            fields = [f"{name}={junk}" for name in FIELDS.split()]
            form = "&".join([f"account={acme.account.pk}", f"action={action}", *fields])
            assert hurt(staff, page.address, verb="POST", body=form.encode()) == []
        for kind in ("multipart/form-data", "multipart/form-data; boundary=x", f"{FORM}; charset=utf-16", "x/y"):
            assert hurt(staff, page.address, verb="POST", body=b"\xff\x00%zz", content_type=kind) == []


@pytest.mark.campaign
def test_no_verb_hurts(acme: Acme, client: Client, staff: Client) -> None:
    addresses = [page.address for page in acme.pages() if page.name != "logout"]
    for who in (client, staff):
        assert [found for verb in VERBS for found in hurt(who, *addresses, verb=verb)] == []


@pytest.mark.campaign
def test_nothing_that_staff_look_up_hurts(acme: Acme, staff: Client) -> None:
    names = ["q", "p", "o", "e", "user", "day", "_popup", "_to_field", "_changelist_filters"]
    for page in every_admin_page.pages(acme):
        if page.name.endswith("_changelist"):
            assert hurt(staff, *(f"{page.address}?{name}={junk}" for name in names for junk in (NUL, TOO_BIG))) == []


@pytest.mark.campaign
def test_no_filter_by_a_column_hurts(acme: Acme, staff: Client) -> None:
    """Django's admin accepts any column of the table as a filter: one of each kind is tried."""
    every_admin_page.pages(acme)
    for table in admin.site._registry:
        address = f"/admin/{table._meta.app_label}/{table._meta.model_name}/"
        kinds = {type(field): field.name for field in table._meta.get_fields()}
        assert hurt(staff, *(f"{address}?{name}={junk}" for name in kinds.values() for junk in (NUL, TOO_BIG))) == []


@pytest.mark.campaign
def test_no_row_that_staff_ask_for_hurts(acme: Acme, staff: Client) -> None:
    every_admin_page.pages(acme)
    keys = ContentType.objects.get_for_model(ApiKey).pk
    asked = [f"/admin/r/{keys}/{junk}/" for junk in JUNK]
    asked += [f"/admin/autocomplete/?app_label=accounts&model_name=membership&field_name=user&term={j}" for j in JUNK]
    for table in admin.site._registry:
        address = f"/admin/{table._meta.app_label}/{table._meta.model_name}"
        asked += [
            f"{address}/{junk}/{view}/"
            for junk in (NUL, HUGE, quote("_00"))
            for view in ("change", "history", "delete")
        ]
    assert hurt(staff, *asked) + hurt(staff, *asked, verb="POST") == []
