"""Shows an account's webhooks and what was sent to them to its owners (docs/webhooks.md)."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from accounts.models import LONGEST_URL, Webhook
from accounts.webhooks import endpoints
from gateway.errors import InvalidRequest, NotFound

from .parts.access import AccountContext, account_context, account_page, page_address, signed_in_page

PAGE_ROWS = 50
UNTYPED = {"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}


class WebhookForm(forms.Form):
    """Asks for the URL of a webhook, and the types of events that it takes."""

    url = forms.CharField(
        label="URL",
        help_text="The gateway posts to it. It begins with https:// and leads to a public address.",
        max_length=LONGEST_URL,
        widget=forms.URLInput(attrs=UNTYPED),
    )
    events = forms.CharField(
        label="Events",
        help_text="Types or patterns, separated by spaces, such as budget.* key.created; * takes all.",
        widget=forms.TextInput(attrs=UNTYPED),
    )

    def __init__(self, data: Any, webhook: Webhook | None = None) -> None:
        patterns = ["*"] if webhook is None else webhook.events
        initial = {"url": "" if webhook is None else webhook.url, "events": " ".join(patterns)}
        super().__init__(data, auto_id="webhook-%s", label_suffix="", initial=initial)

    def clean_url(self) -> str:
        return str(_checked(endpoints.checked_url, self.cleaned_data["url"]))

    def clean_events(self) -> list[str]:
        patterns: list[str] = _checked(endpoints.checked_events, self.cleaned_data["events"].replace(",", " ").split())
        return patterns


def _checked(check: Any, value: Any) -> Any:
    try:
        return check(value)
    except InvalidRequest as error:
        rule = (error.rule or error.message).replace("an array of ", "")
        raise forms.ValidationError(f"{rule[:1].upper()}{rule[1:]}") from None


@account_page("GET", "HEAD", "POST")
def webhook_list(request: HttpRequest, current: AccountContext) -> HttpResponse:
    """Lists an account's webhooks, and creates them. The answer to the form shows the new webhook's secret."""
    current.require_owner()
    form = WebhookForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        try:
            webhook, secret = endpoints.create(
                current.account.pk, form.cleaned_data["url"], form.cleaned_data["events"]
            )
        except InvalidRequest as error:
            form.add_error(None, error.message)
        else:
            return current.page(request, "new_webhook", {"webhook": webhook, "secret": secret})
    context = {"webhooks": Webhook.objects.filter(account=current.account), "form": form}
    return current.page(request, "webhooks", context, form)


@signed_in_page("GET", "HEAD", "POST")
def webhook_detail(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """Shows a webhook and its deliveries. Owners change it, send a test, and send an event again."""
    webhook, current = _find(request, webhook_id)
    action = request.POST.get("action") if request.method == "POST" else None
    form = WebhookForm(request.POST if action == "save" else None, webhook)
    if request.method == "POST" and (not form.is_bound or form.is_valid()):
        try:
            _act(request, webhook, action, form)
        except (InvalidRequest, NotFound) as error:
            messages.error(request, error.message)
        return redirect(reverse("webhook", args=[webhook.pk]))
    deliveries = webhook.deliveries.order_by("-pk")
    before = request.GET.get("before")
    if before is not None:
        deliveries = deliveries.filter(pk__lt=_uuid(before))
    rows = list(deliveries[: PAGE_ROWS + 1])
    context = {
        "webhook": webhook,
        "form": form,
        "deliveries": rows[:PAGE_ROWS],
        "older": rows[PAGE_ROWS - 1].pk if len(rows) > PAGE_ROWS else None,
        "before": before,
    }
    return current.page(request, "webhook", context, form)


def _act(request: HttpRequest, webhook: Webhook, action: str | None, form: WebhookForm) -> None:
    match action:
        case "save":
            endpoints.change(webhook, url=form.cleaned_data["url"], patterns=form.cleaned_data["events"])
            messages.success(request, "The webhook has been saved.")
        case "test":
            endpoints.send_test(webhook)
            messages.success(request, "A test is being sent. Reload the page to see the answer.")
        case "again":
            delivery = endpoints.find_delivery(webhook, request.POST.get("delivery", ""))
            endpoints.send_again(webhook, delivery)
            messages.success(request, "The event is being sent again. Reload the page to see the answer.")
        case "disable":
            endpoints.change(webhook, disabled=True)
            messages.success(request, "The webhook has been disabled. Nothing is sent to it.")
        case "enable":
            endpoints.change(webhook, disabled=False)
            messages.success(request, "The webhook has been enabled.")
        case _:
            raise InvalidRequest("Nothing was chosen.")


@signed_in_page("GET", "HEAD", "POST")
def delete_webhook(request: HttpRequest, webhook_id: UUID) -> HttpResponse:
    """Asks for a confirmation on GET, and deletes the webhook on POST."""
    webhook, current = _find(request, webhook_id)
    if request.method != "POST":
        return current.page(request, "delete_webhook", {"webhook": webhook})
    endpoints.delete(webhook)
    messages.success(request, "The webhook has been deleted. Nothing is sent to it.")
    return redirect(page_address("webhooks", webhook.account_id))


def _find(request: HttpRequest, webhook_id: UUID) -> tuple[Webhook, AccountContext]:
    """Returns a webhook of an account that the person owns. Raises Http404 and PermissionDenied."""
    webhook = get_object_or_404(Webhook, pk=webhook_id)
    current = account_context(request, webhook.account_id)
    current.require_owner()
    return webhook, current


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise Http404 from None
