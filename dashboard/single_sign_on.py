"""Serves the two addresses of single sign-on: one leads to the identity provider, which leads back to the other."""

import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.internal.stagekit import clear_login
from allauth.account.models import Login
from allauth.account.utils import get_next_redirect_url
from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from accounts import oidc_people, single_sign_on, throttle
from accounts.single_sign_on import SignInFailed
from accounts.throttle import TooManyTries

logger = logging.getLogger(__name__)


def sign_on_page(view: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Decorates a view that asks the identity provider: an error becomes a page that explains it and leads back."""

    @require_GET
    @never_cache
    def page(request: HttpRequest) -> HttpResponseBase:
        if not single_sign_on.is_configured():
            raise Http404
        try:
            throttle.require_single_sign_on(request)
            return view(request)
        except SignInFailed as failure:
            logger.warning("single sign-on: %s", failure.reason)
            return render(request, "dashboard/sign_in_failed.html", {"words": str(failure)}, status=failure.status)
        except TooManyTries as error:
            response = render(request, "dashboard/wait_page.html", {"wait": error.minutes}, status=429)
            response["Retry-After"] = str(error.seconds)
            return response

    return page


# A link and no form leads here: `form-action 'self'` keeps browsers from following a form's redirect to a provider.
@sign_on_page
def begin(request: HttpRequest) -> HttpResponseBase:
    """Sends the browser to the identity provider."""
    if not request.user.is_authenticated:
        clear_login(request)
    address = get_next_redirect_url(request) or ""
    is_door = urlsplit(address).path in (reverse("login"), reverse("logout"), request.path)
    return single_sign_on.send_to_provider(request, "" if is_door else address)


@sign_on_page
def finish(request: HttpRequest) -> HttpResponse:
    """Signs in the person whom the identity provider has sent back."""
    identity, address = single_sign_on.identify(request)
    person = oidc_people.sign_in(identity)
    if request.user.is_authenticated and request.user != person:
        get_adapter(request).logout(request)
    record_authentication(request, person, "socialaccount")
    address = address or oidc_people.page_of_newcomer(person) or reverse(settings.LOGIN_REDIRECT_URL)
    response: HttpResponse = perform_login(request, Login(user=person, redirect_url=address))
    return response
