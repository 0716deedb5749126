"""Gunicorn's master logs likely mistakes in the settings, and `manage.py check` prints them."""

import importlib.util
import runpy

import pytest
from pytest_django import Settings

from gateway.server import settings_warnings
from tests.servers.process import ROOT

SETTINGS = str(ROOT / "gateway" / "settings.py")


def test_missing_packages_of_traces_are_warned_of(settings: Settings) -> None:
    settings.OTEL_EXPORTER_OTLP_ENDPOINT, settings.TRACES_CAN_BE_SENT = "http://127.0.0.1:4318", False
    (found,) = settings_warnings.current()
    assert (found.id, "requirements-traces.txt" in found.hint) == ("gateway.W002", True)
    settings.TRACES_CAN_BE_SENT = True
    assert settings_warnings.current() == []


def test_the_settings_start_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert runpy.run_path(SETTINGS)["TRACES_CAN_BE_SENT"] is True
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert runpy.run_path(SETTINGS)["TRACES_CAN_BE_SENT"] is False
