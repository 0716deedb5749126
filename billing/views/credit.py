"""What an account has left, and every movement of it."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.pages import Place, account_page
from billing.credit import Shown, ledger_page
from billing.periods import this_month
from billing.standing import funds_of

LAST_SEQ = 2**63 - 1


@account_page()
def credit(request: HttpRequest, place: Place) -> HttpResponse:
    """The balance, the ledger (`show`, `before` or `after` an entry) and the form that downloads a statement."""
    shown = _shown(request)
    now = timezone.now()
    page = ledger_page(place.account.pk, shown, before=_seq(request, "before"), after=_seq(request, "after"))
    context = {
        "funds": funds_of(place.account.pk, now),
        "ledger": page,
        "shown": shown,
        "choices": {Shown.ALL: "All", Shown.CREDIT: "Credit only", Shown.USAGE: "Usage only"},
        "month": this_month(now),
    }
    return render(request, "billing/credit.html", place.context | context)


def _shown(request: HttpRequest) -> Shown:
    try:
        return Shown(request.GET.get("show", Shown.ALL))
    except ValueError:
        raise Http404 from None


def _seq(request: HttpRequest, name: str) -> int | None:
    """A position in the ledger. Raises Http404 for what is none."""
    text = request.GET.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= LAST_SEQ):
        raise Http404
    return int(text)
