"""The WSGI application: `gunicorn -c python:gateway.gunicorn_conf gateway.wsgi`."""

import os

from django.core.wsgi import get_wsgi_application
from django.urls import get_resolver

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
application = get_wsgi_application()
get_resolver().url_patterns  # noqa: B018  # imports every view now: a worker's first request waited a second for it
