"""Lists every address of the product. Apps are named by strings, because this app must not import them."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path, re_path

from .edge.health import LIVE_PATHS, READY_PATH, live, ready

handler400 = "gateway.edge.exception_handler.handler400"
handler403 = "gateway.edge.exception_handler.handler403"
handler404 = "gateway.edge.exception_handler.handler404"
handler500 = "gateway.edge.exception_handler.handler500"

api: list[URLPattern | URLResolver] = [
    path("", include("inference.urls")),
    path("", include("accounts.urls")),
    path("", include("catalogue.urls")),
    path("", include("aliases.urls")),
    path("", include("billing.urls")),
    path("", include("reference.urls")),
    path("", include("proof.urls")),
]

urlpatterns = [
    re_path(r"^(?:api/)?v1/", include(api)),
    path("", include("reference.urls")),
    *(path(probe, live) for probe in LIVE_PATHS),
    path(READY_PATH, ready),
    path("log/", include("proof.log_urls")),
    path("", include("reference.page_urls")),
    path("", include("proof.page_urls")),
    path("", include("dashboard.urls")),  # before the admin: it answers two addresses below /admin/
    path("admin/", admin.site.urls),
]
