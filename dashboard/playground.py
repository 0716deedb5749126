"""Shows the Playground, a page that sends chat completions with a key of its own (static/js/playground.js)."""

from collections.abc import Iterator

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from accounts import keys, playground_keys
from accounts.models import Account, Membership
from aliases.models import Alias
from billing.models import Wallet
from catalogue import listing
from catalogue.listing import View, listed
from catalogue.models import Modality
from catalogue.routing import quota, snapshot

from .parts.access import AccountContext, account_page
from .parts.advice import BY_CODE, OF_THE_PROVIDER
from .parts.routes import PLACEHOLDER_MODEL, model_to_try

LONGEST_MODEL = 300  # characters of `?model=`
Group = tuple[str, list[str]]


@account_page()
def playground(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows a conversation with a model, which `?model=` chooses."""
    groups = list(_models(current.account))
    chosen = request.GET.get("model", "")[:LONGEST_MODEL] or model_to_try(timezone.now())
    context = {
        "groups": groups,
        "chosen": "" if chosen == PLACEHOLDER_MODEL else chosen,
        "is_offered": any(chosen in models for _, models in groups),
        "funds": {"status": "empty" if Wallet.objects.get(pk=current.account.pk).balance <= 0 else "good"},
        "public_url": settings.PUBLIC_URL,
        "advice": {code: explained.what_to_do for code, explained in BY_CODE.items()}
        | {"": OF_THE_PROVIDER.what_to_do},
    }
    return current.page(request, "playground", context)


@account_page("POST")
def new_key(_request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Answers `{key, seconds}`: a new token of the person's Playground key, which replaces the one before."""
    try:
        _, token = playground_keys.issue(current.person, current.account)
    except Membership.DoesNotExist:
        raise Http404 from None
    except keys.KeyNameTaken as error:
        return JsonResponse({"message": f"{error} Rename or delete it on the API keys page."}, status=409)
    return JsonResponse({"key": token, "seconds": int(playground_keys.LIFETIME.total_seconds())})


def _models(account: Account) -> Iterator[Group]:
    """Yields each provider's name with the ids of the chat models that can be asked for now."""
    catalogue, today = snapshot.current(), timezone.now().date()
    view = View(today, quota.held(catalogue.with_quota, today), modality=Modality.CHAT)
    yield "Aliases", [f"alias/{name}" for name in Alias.objects.filter(account=account).values_list("name", flat=True)]
    yield "Automatic routing", [info["id"] for info in listing.autos(catalogue, view)]
    groups: dict[str, Group] = {}
    for offer, routes in listed(catalogue, view):
        _, ids = groups.setdefault(offer.upstream.slug, (offer.upstream.name, []))
        if any(route.locode == offer.default_locode for route in routes):
            ids.append(offer.id)
        ids += [route.id for route in routes]
    yield from groups.values()
