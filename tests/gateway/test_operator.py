"""The operator's name, logo and address are on pages and in mails."""

import re

import pytest
from django.contrib.staticfiles import finders
from django.core import mail as outbox
from django.core.mail import EmailMessage
from django.test import Client
from pytest_django import Settings

from gateway.operator import operator
from gateway.pages import mail
from tests.conftest import OpenAccount, StartGateway
from tests.page_text import plain
from tests.servers.process import ROOT

LOGO = ROOT / "static" / "img" / "mark.svg"


@pytest.fixture
def acme(settings: Settings) -> Settings:
    settings.OPERATOR_NAME = "Acme AI"
    settings.OPERATOR_ADDRESS = "1 Road\n75002 Paris"
    settings.OPERATOR_EMAIL = "billing@acme.example"
    return settings


@pytest.mark.django_db
@pytest.mark.usefixtures("acme")
def test_pages_have_the_operator_s_name_in_the_title_and_the_bar(client: Client) -> None:
    page = client.get("/login").text
    assert "<title>Sign in · Acme AI</title>" in page
    assert "<span>Acme AI</span>" in page
    assert "Inference Gateway" not in page
    assert "<title>Not found · Acme AI</title>" in client.get("/nowhere", headers={"Accept": "text/html"}).text


@pytest.mark.django_db
def test_pages_end_with_the_operator_s_address_email_and_vat_id(client: Client, acme: Settings) -> None:
    acme.OPERATOR_VAT_ID = "FR123"
    for path in ("/login", "/docs/guide"):
        foot = client.get(path).text.partition("</main>")[2]
        assert plain(foot) == " Acme AI, 1 Road, 75002 Paris billing@acme.example VAT id FR123 "
    acme.OPERATOR_ADDRESS = acme.OPERATOR_EMAIL = acme.OPERATOR_VAT_ID = ""
    assert "<footer" not in client.get("/login").text


def test_mails_end_with_the_operator_s_name_address_and_email(acme: Settings) -> None:
    mail.send(EmailMessage("subject", "body\n", to=["guest@example.com"]))
    assert outbox.outbox[0].body == "body\n\n-- \nAcme AI\n1 Road\n75002 Paris\nbilling@acme.example\n"
    acme.OPERATOR_VAT_ID = "FR123"
    mail.send(EmailMessage("subject", "body\n", to=["guest@example.com"]))
    assert outbox.outbox[1].body.endswith("\nbilling@acme.example\nVAT id FR123\n")


def test_mails_of_an_operator_without_an_address_have_no_signature() -> None:
    mail.send(EmailMessage("subject", "body\n", to=["guest@example.com"]))
    assert outbox.outbox[0].body == "body\n"


def test_members_top_up_at_the_page_for_it_or_by_mail(acme: Settings) -> None:
    assert operator().top_up == "mailto:billing@acme.example"
    acme.BILLING_CONTACT_URL = "https://billing.example"
    assert operator().top_up == "https://billing.example"


def test_no_other_file_of_the_logo_s_folder_is_served(acme: Settings) -> None:
    acme.OPERATOR_LOGO = LOGO
    assert finders.find("operator/mark.svg") == str(LOGO)
    assert finders.find("operator/favicon.svg") is None


def test_the_gateway_serves_the_logo_itself(start_gateway: StartGateway, open_account: OpenAccount) -> None:
    gateway = start_gateway(OPERATOR_LOGO=str(LOGO), OPERATOR_NAME="Acme AI")
    http = open_account(gateway).http
    page = http.get("/login").text
    found = re.search(r'<img src="(/static/operator/mark.svg\?v=[0-9a-f]{12})"', page)
    assert found
    answer = http.get(found[1])
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/svg+xml")
    assert answer.content == LOGO.read_bytes()
