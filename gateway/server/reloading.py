"""Settings at a reload (SIGHUP), in gunicorn's master, which its workers are copies of."""

import importlib
import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import empty


def read_settings_anew() -> None:
    """Takes the settings as the environment's file has them now. Raises ImproperlyConfigured and changes nothing where
    a value is bad.

    METRICS_BIND stays: its process has begun, or has not.
    """
    name, environment = os.environ["DJANGO_SETTINGS_MODULE"], dict(os.environ)
    before = sys.modules.pop(name)
    for variable in before.READ_FROM_FILE:
        os.environ.pop(variable, None)
    try:
        after = importlib.import_module(name)
    except ImproperlyConfigured:
        sys.modules[name] = before
        os.environ.clear()
        os.environ.update(environment)
        raise
    after.METRICS_BIND = before.METRICS_BIND  # type: ignore[attr-defined]
    settings._wrapped = empty  # the next look reads the module
