"""The metric of the log's lag is the age of the oldest ledger entry that the published checkpoint does not have."""

from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import Settings

from billing.models import LedgerEntry
from gateway.management.checks import CheckDoubtful
from proof import sequencer
from proof.lag import Lag, check
from proof.models import LogCheckpoint
from tests.billing.records import open_for, serve
from tests.conftest import StartGateway
from tests.patience import eventually
from tests.proof.log import KEY
from tests.servers.gateway import GatewayServer
from tests.servers.process import free_port
from tests.servers.scrape import Scrape


@pytest.fixture
def key(settings: Settings) -> None:
    settings.LOG_KEY = KEY.to_text()


def age_of_oldest(*entries: LedgerEntry) -> float:
    return (timezone.now() - min(each.created_at for each in entries)).total_seconds()


def seconds(lag: Lag) -> float:
    lag.look()
    return lag.seconds()[""]


@pytest.mark.django_db
@pytest.mark.usefixtures("key")
def test_the_lag_is_the_age_of_the_oldest_entry_that_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    lag = Lag()
    assert lag.seconds() == {}  # it has not looked yet
    assert seconds(lag) == 0
    acme = open_for(name="Acme")
    opening = LedgerEntry.objects.get()
    serve(acme)
    assert seconds(lag) == pytest.approx(age_of_oldest(opening), abs=1)
    sequencer.append(KEY)
    serve(acme)
    assert LogCheckpoint.objects.get().published_at is None
    assert seconds(lag) == pytest.approx(age_of_oldest(opening), abs=1)
    sequencer.advance()
    assert seconds(lag) == 0
    serve(acme)
    serve(open_for(name="Other"))
    newest = LedgerEntry.objects.filter(leaf=None)
    assert len(newest) == 3
    later = timezone.now() + timedelta(hours=1)
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: later)
        assert seconds(lag) == age_of_oldest(*newest) > 3500


@pytest.mark.django_db
def test_a_gateway_without_a_log_has_no_lag() -> None:
    open_for()
    lag = Lag()
    lag.look()
    assert lag.seconds() == {}


@pytest.mark.django_db
@pytest.mark.usefixtures("key")
def test_doctor_says_how_far_the_log_is(monkeypatch: pytest.MonkeyPatch) -> None:
    open_for()
    sequencer.advance()
    assert check() == "1 leaves, 0 witnesses"
    serve(open_for(name="Other"))
    later = timezone.now() + timedelta(hours=1)
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "now", lambda: later)
        with pytest.raises(
            CheckDoubtful, match=r"has 1 leaves, and lacks an entry of 36\d\d s ago: look in the gateway"
        ):
            check()


@pytest.mark.process
def test_doctor_looks_at_the_log_of_a_gateway_that_keeps_one(operator: GatewayServer) -> None:
    assert "ok    log: 0 leaves" in operator.manage_subprocess("doctor", LOG_KEY=KEY.to_text()).stdout
    assert " log: " not in operator.manage_subprocess("doctor").stdout


def test_the_metric_is_there(start_gateway: StartGateway) -> None:
    server = start_gateway(
        LOG_KEY=KEY.to_text(),
        METRICS_BIND=f"127.0.0.1:{free_port()}",
        DJANGO_SETTINGS_MODULE="tests.proof.short_intervals",
    )
    server.manage("open_accounts", "somebody").ok()
    assert eventually(lambda: "gateway_log_lag_seconds" in {name for name, _ in Scrape.of(server).series})
    assert eventually(lambda: Scrape.of(server).total("gateway_log_lag_seconds") == 0)
