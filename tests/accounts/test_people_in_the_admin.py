"""Staff with the right to change people can neither raise their own rights nor take over other staff's accounts."""

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import Account, Membership, User
from billing.accounts import open_account
from tests.dashboard.people import MEMBER, client_of

pytestmark = pytest.mark.django_db

SUPPORT, BOSS, COLLEAGUE = "support@staff.example", "boss@staff.example", "colleague@staff.example"
PASSWORDS = {"usable_password": "true", "password1": "correct horse battery", "password2": "correct horse battery"}
RISING = {"is_staff": "on", "is_superuser": "on", "is_active": "on"}


@pytest.fixture
def support() -> Client:
    """Signs in staff who manage people and are not superusers."""
    person = User.objects.create_user(SUPPORT, is_staff=True)
    rights = Permission.objects.filter(content_type__app_label="accounts", content_type__model="user")
    person.user_permissions.set(rights)
    return client_of(SUPPORT)


def page(email: str, what: str = "change") -> str:
    return f"/admin/accounts/user/{User.objects.get(email=email).pk}/{what}/"


def rights(email: str) -> tuple[bool, bool, int]:
    person = User.objects.get(email=email)
    return person.is_staff, person.is_superuser, person.user_permissions.count() + person.groups.count()


def test_customers_are_looked_after(support: Client) -> None:
    User.objects.create_user(MEMBER)
    fields = {"email": MEMBER, "first_name": "Ada", "is_active": "on"}
    assert support.post(page(MEMBER), fields).status_code == 302
    assert User.objects.get(email=MEMBER).first_name == "Ada"
    assert support.post(page(MEMBER, "password"), PASSWORDS).status_code == 302
    assert support.post(page(MEMBER), fields | {"is_active": ""}).status_code == 302
    assert not User.objects.get(email=MEMBER).is_active


def test_only_superusers_give_rights(support: Client) -> None:
    User.objects.create_user(MEMBER)
    asked = RISING | {
        "email": MEMBER,
        "groups": Group.objects.create(name="all").pk,
        "user_permissions": [right.pk for right in Permission.objects.all()[:3]],
    }
    support.post(page(MEMBER), asked)
    assert rights(MEMBER) == (False, False, 0)


@pytest.mark.parametrize("whose", [SUPPORT, BOSS, COLLEAGUE])
@pytest.mark.parametrize("what", ["change", "password", "delete"])
def test_staff_are_changed_by_superusers_alone(support: Client, whose: str, what: str) -> None:
    User.objects.create_superuser(BOSS)
    User.objects.create_user(COLLEAGUE, is_staff=True)
    before = list(User.objects.order_by("pk").values("email", "password", "is_active", "is_superuser"))
    fields = {"email": whose, **RISING, **PASSWORDS, "post": "yes"}
    assert support.post(page(whose, what), fields).status_code == 403
    assert list(User.objects.order_by("pk").values("email", "password", "is_active", "is_superuser")) == before


@pytest.mark.parametrize("what", ["change", "delete"])
def test_staff_give_no_rights_to_groups(support: Client, what: str) -> None:
    group = Group.objects.create(name="colleagues")
    for person in User.objects.filter(email=SUPPORT):
        person.groups.add(group)
        person.user_permissions.add(*Permission.objects.filter(content_type__model="group"))
    fields = {"name": "colleagues", "permissions": [right.pk for right in Permission.objects.all()], "post": "yes"}
    assert support.post(f"/admin/auth/group/{group.pk}/{what}/", fields).status_code == 403
    assert support.post("/admin/auth/group/add/", fields | {"name": "more"}).status_code == 403
    group.refresh_from_db()
    assert group.permissions.count() == 0
    assert not Group.objects.filter(name="more").exists()


def test_staff_of_a_ready_made_group_do_their_work_and_no_more() -> None:
    account = open_account("Northwind")
    pages = {
        "Support": {
            f"/admin/accounts/account/{account.pk}/change/": 200,
            f"/admin/accounts/account/{account.pk}/credit/": 403,
            f"/admin/accounts/account/{account.pk}/invite/": 200,
        },
        "Finance": {
            f"/admin/accounts/account/{account.pk}/credit/": 200,
            f"/admin/accounts/account/{account.pk}/invite/": 403,
            "/admin/catalogue/provider/": 200,
        },
        "Catalogue": {"/admin/catalogue/region/": 200, f"/admin/accounts/account/{account.pk}/change/": 403},
    }
    for name, statuses in pages.items():
        person = User.objects.create_user(f"{name.lower()}@example.org", is_staff=True)
        person.groups.add(Group.objects.get(name=name))
        client = client_of(person.email)
        assert {page: client.get(page).status_code for page in statuses} == statuses


def test_superusers_do_all_of_it() -> None:
    User.objects.create_superuser(BOSS)
    User.objects.create_user(COLLEAGUE, is_staff=True)
    boss = client_of(BOSS)
    assert boss.post(page(COLLEAGUE), {"email": COLLEAGUE, **RISING}).status_code == 302
    assert rights(COLLEAGUE)[:2] == (True, True)


def crowded(count: int) -> tuple[Account, dict[str, str]]:
    """Opens an account with this many members, and returns it with the form of its page in the admin."""
    account = open_account(f"crowd of {count}")
    people = User.objects.bulk_create(User(email=f"{number}@crowd{count}.example") for number in range(count))
    Membership.objects.bulk_create(Membership(user=person, account=account) for person in people)
    fields = {"name": account.name, "currency": account.currency}
    fields |= {f"membership_set-{form}_FORMS": str(count) for form in ("TOTAL", "INITIAL")}
    for row, member in enumerate(Membership.objects.filter(account=account)):
        sent = {"id": member.pk, "account": account.pk, "user": member.user_id, "role": member.role}
        fields |= {f"membership_set-{row}-{name}": str(value) for name, value in sent.items()}
    return account, fields


def test_an_account_of_many_members_can_be_saved(admin_client: Client) -> None:
    account, fields = crowded(300)
    assert len(fields) > 1000
    response = admin_client.post(f"/admin/accounts/account/{account.pk}/change/", fields | {"name": "Crowd"})
    assert response.status_code == 302
    account.refresh_from_db()
    assert account.name == "Crowd"


def test_its_page_takes_one_select_for_each_member(admin_client: Client) -> None:
    taken = []
    for count in (10, 20):
        account, _ = crowded(count)
        with CaptureQueriesContext(connection) as queries:
            assert admin_client.get(f"/admin/accounts/account/{account.pk}/change/").status_code == 200
        taken.append(len(queries))
    assert taken[1] - taken[0] <= 10
