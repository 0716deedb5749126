"""Builds the WSGI application: `gunicorn -c python:gateway.gunicorn_conf gateway.wsgi`."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
_django = get_wsgi_application()
get_resolver().url_patterns  # noqa: B018  # imports every view now: else the first request waits a second for it

from . import fastpath  # noqa: E402  # Django is set up from here on
from .edge.endpoint import at_each_path  # noqa: E402
from .edge.rules import is_allowed  # noqa: E402
from .fastpath.http_server import Application  # noqa: E402

application = Application(
    at_each_path(import_string(settings.INFERENCE_ENDPOINTS)),
    _django,
    is_ordinary=is_allowed,
    is_open=fastpath.is_on(),
)
