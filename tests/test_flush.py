"""A transactional test leaves the database to the next test as it should be."""

import pytest
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command

from accounts.models import Account
from tests.factories import new_account

pytestmark = pytest.mark.django_db(transaction=True)


def staff_rights() -> set[tuple[str, str]]:
    return set(Group.objects.values_list("name", "permissions__codename"))


def test_a_flush_takes_what_a_test_wrote_and_leaves_what_migrations_wrote() -> None:
    rights, types = staff_rights(), dict(ContentType.objects.values_list("model", "pk"))
    assert ("Support", "add_invitation") in rights
    new_account()
    call_command("flush", interactive=False, verbosity=0)
    assert not Account.objects.exists()
    assert staff_rights() == rights
    assert dict(ContentType.objects.values_list("model", "pk")) == types
    Group.objects.create(name="the next number is free")
