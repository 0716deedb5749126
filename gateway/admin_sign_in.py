"""The admin's own login and password pages lead to the dashboard's, where guesses are limited."""

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache


@never_cache
def admin_login(request: HttpRequest) -> HttpResponseBase:
    """Where the admin sends whom it does not let in: strangers go on to the login, people who are not staff get 403."""
    if not request.user.is_authenticated:
        return redirect_to_login(request.GET.get("next") or reverse("admin:index"), settings.LOGIN_URL)
    if not admin.site.has_permission(request):
        raise PermissionDenied
    return redirect("admin:index")


def admin_password(_request: HttpRequest) -> HttpResponseBase:
    """One page changes passwords."""
    return redirect("password")
