"""The dashboard's pages on keys: for every member of their account; anybody else finds nothing."""

from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from accounts import key_list, keys
from accounts.key_forms import CreateForm
from accounts.models import ApiKey
from accounts.pages import Place, account_page, member_page, person_of, place_in


@account_page("GET", "HEAD", "POST")
def api_keys(request: HttpRequest, place: Place) -> HttpResponse:
    """An account's keys, and a form for one more, whose answer shows the token: there is no other place to keep it."""
    form = CreateForm(request.POST if request.method == "POST" else None)
    issued = form.issue(place.account) if form.is_bound else None
    if issued is not None:
        return _shown_once(request, place, *issued)
    page = key_list.page(place.account, timezone.now(), before=_before(request))
    context = place.context | {"page": page, "form": form, "before": request.GET.get("before")}
    return render(request, "accounts/keys.html", context, status=422 if form.errors else 200)


@member_page("GET", "HEAD", "POST")
def delete(request: HttpRequest, key_id: UUID) -> HttpResponse:
    """Asks first; a form sent from there deletes."""
    key = _own(request, key_id)
    if key.deleted_at is not None:
        return _gone(request, key)
    if request.method != "POST":
        context = place_in(request, key.account_id).context | {"key": key}
        return render(request, "accounts/delete_key.html", context)
    if not keys.delete(key):
        return _gone(request, key)
    messages.success(request, f"{key.name} is deleted. Requests with it are refused from now on.")
    return redirect(_list(key))


def _shown_once(request: HttpRequest, place: Place, key: ApiKey, token: str) -> HttpResponse:
    """Neither a redirect nor a message could carry the token: both would store it."""
    context = place.context | {"key": key, "token": token, "public_url": settings.PUBLIC_URL}
    return render(request, "accounts/new_key.html", context)


def _before(request: HttpRequest) -> UUID | None:
    """Where the page begins that was asked for."""
    wanted = request.GET.get("before")
    try:
        return None if wanted is None else UUID(wanted)
    except ValueError:
        raise Http404 from None


def _gone(request: HttpRequest, key: ApiKey) -> HttpResponse:
    """For a page that is out of date."""
    messages.info(request, f"{key.name} was deleted already.")
    return redirect(_list(key))


def _list(key: ApiKey) -> str:
    return f"{reverse('keys')}?account={key.account_id}"


def _own(request: HttpRequest, key_id: UUID) -> ApiKey:
    """The key, deleted or not, where it is of an account that the person is a member of."""
    own = ApiKey.objects.filter(account__membership__user=person_of(request))
    key = own.filter(pk=key_id).first()
    if key is None:
        raise Http404
    return key
