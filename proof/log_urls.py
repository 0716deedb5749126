"""Routes the public parts of the log, below `/log/`."""

from django.urls import path, re_path

from . import log_views

# `x001/x234/067` is tile 1234067; `067.p/12` is its first 12 hashes.
NUMBER = r"(?P<number>(?:x(?!000)[0-9]{3}/(?:x[0-9]{3}/){0,4})?[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?"

urlpatterns = [
    path("checkpoint", log_views.checkpoint, name="log-checkpoint"),
    path("key", log_views.key, name="log-key"),
    path("verify.py", log_views.program, name="log-program"),
    path("catalogue", log_views.catalogue, name="log-catalogue"),
    re_path(r"^catalogue/grid/(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})\Z", log_views.hourly_grid, name="log-hourly-grid"),
    re_path(rf"^tile/(?P<level>0|[1-9][0-9]?)/{NUMBER}\Z", log_views.tile, name="log-tile"),
    re_path("", log_views.missing),
]
