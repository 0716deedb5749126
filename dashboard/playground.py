"""Shows the Playground, a page that sends chat completions with a key of its own (static/js/playground.js)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from accounts import keys, playground_keys
from accounts.models import Account, Membership
from aliases.models import Alias
from billing.models import Wallet
from catalogue import listing
from catalogue.listing import View, listed, servable
from catalogue.models import Modality
from catalogue.routing import snapshot
from catalogue.routing.model_ids import AUTO
from catalogue.routing.routes import Snapshot, Upstream

from .parts.access import AccountContext, account_page, page_address
from .parts.advice import BY_CODE, OF_THE_PROVIDER, FailureAdvice
from .parts.routes import PLACEHOLDER_MODEL, model_to_try, view_of

LONGEST_MODEL = 300  # characters of `?model=`
ANTHROPIC = "anthropic"  # the dialect of an API that has no `seed`
OPTIONAL_PARAMETERS = ("temperature", "top_p", "seed", "stop", "response_format")


@dataclass(frozen=True, slots=True)
class Choice:
    """Describes a model in the list. `lacks` names the parameters that it refuses, if they differ from its group's."""

    id: str
    takes_images: bool
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Holds models under a label, and the parameters that all of them refuse."""

    label: str
    models: list[Choice]
    lacks: str = ""


@account_page()
def playground(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Shows a conversation with a model, which `?model=` chooses."""
    groups = list(_models(current.account))
    chosen = request.GET.get("model", "")[:LONGEST_MODEL] or model_to_try(timezone.now(), current.account)
    context = {
        "groups": groups,
        "chosen": "" if chosen == PLACEHOLDER_MODEL else chosen,
        "is_offered": any(chosen == model.id for group in groups for model in group.models),
        "funds": {"status": "empty" if Wallet.objects.get(pk=current.account.pk).balance <= 0 else "good"},
        "public_url": settings.PUBLIC_URL,
        "advice": {code: _shown(advice, current) for code, advice in {**BY_CODE, "": OF_THE_PROVIDER}.items()},
    }
    return current.page(request, "playground", context)


def _shown(advice: FailureAdvice, current: AccountContext) -> dict[str, str]:
    """Returns what the script shows of an advice: a text and, if there is one, the page on which to follow it."""
    if not advice.page:
        return {"text": advice.what_to_do}
    address = page_address(advice.page, current.account.pk)
    return {"text": advice.what_to_do, "address": address, "title": advice.page_title}


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
    """Yields the chat models that can be used now, in groups: aliases, automatic routing, and each provider."""
    catalogue = snapshot.current()
    view = replace(view_of(catalogue, timezone.now(), account), modality=Modality.CHAT)
    yield Group("Aliases", [_of_alias(alias, catalogue) for alias in Alias.objects.filter(account=account)])
    yield Group(
        "Automatic routing",
        [Choice(info["id"], _may_take_images(info["id"], catalogue, view)) for info in listing.autos(catalogue, view)],
    )
    groups: dict[str, Group] = {}
    for offer, routes in listed(catalogue, view):
        group = groups.setdefault(offer.upstream.slug, Group(offer.upstream.name, [], _lacking(offer.upstream)))
        ids = [route.id for route in routes]
        if any(route.locode == offer.default_locode for route in routes):
            ids.insert(0, offer.id)
        group.models.extend(Choice(id_, offer.image_input is True) for id_ in ids)
    yield from groups.values()


def _of_alias(alias: Alias, catalogue: Snapshot) -> Choice:
    offer = catalogue.offers.get((alias.provider, alias.canonical_id))
    if offer is None:
        return Choice(alias.full_name, takes_images=False)
    return Choice(alias.full_name, offer.image_input is True, _lacking(offer.upstream))


def _may_take_images(auto_id: str, catalogue: Snapshot, view: View) -> bool:
    """Tells whether any route takes images: automatic routing sends a request with images to such a route."""
    offers = catalogue.by_canonical_id[auto_id.removeprefix(f"{AUTO}/")]
    return any(offer.image_input is True and servable(offer, view) for offer in offers)


def _lacking(upstream: Upstream) -> str:
    """Returns the page's optional parameters that a provider refuses, with spaces between them."""
    refused = upstream.refused_parameters | ({"seed"} if upstream.dialect == ANTHROPIC else set())
    return " ".join(name for name in OPTIONAL_PARAMETERS if name in refused)
