"""The WSGI application: `gunicorn -c python:gateway.gunicorn_conf gateway.wsgi`."""

import os

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
_django = get_wsgi_application()
get_resolver().url_patterns  # noqa: B018  # imports every view now: a worker's first request waited a second for it

from .fastpath.short_chain import ShortChain  # noqa: E402  # Django is set up from here on

application = ShortChain(import_string(settings.INFERENCE_ENDPOINTS), _django, is_open=settings.GATEWAY_FASTPATH)
