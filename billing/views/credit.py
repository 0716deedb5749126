"""What an account has left, and every movement of it."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from accounts.pages import Place, account_page
from billing.balance_status import funds_of
from billing.credit import Shown, ledger_page
from billing.periods import this_month
from billing.statement_forms import StatementForm

LAST_SEQ = 2**63 - 1


@account_page()
def credit(request: HttpRequest, place: Place) -> HttpResponse:
    """The balance, the ledger (`show`, `before` or `after` an entry) and the form that downloads a statement.

    422 where `since` and `until` are bounds that no statement could be had for.
    """
    shown = _shown(request)
    now = timezone.now()
    page = ledger_page(place.account.pk, shown, before=_seq(request, "before"), after=_seq(request, "after"))
    form = StatementForm(_bounds(request), this_month(now))
    context = {
        "funds": funds_of(place.account.pk, now),
        "ledger": page,
        "shown": shown,
        "choices": {Shown.ALL: "All", Shown.CREDIT: "Credit only", Shown.USAGE: "Usage only"},
        "form": form,
    }
    return render(request, "billing/credit.html", place.context | context, status=422 if form.errors else 200)


def _bounds(request: HttpRequest) -> dict[str, str] | None:
    """What the form is filled with, where it was sent back."""
    return {name: request.GET[name] for name in ("since", "until") if name in request.GET} or None


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
