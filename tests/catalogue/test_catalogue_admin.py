"""Staff can change some parts of the catalogue in the admin, and not others."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.admin.sites import site
from django.contrib.auth.models import Permission
from django.forms.models import BaseInlineFormSet
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from accounts.models import User
from catalogue import changes, models
from catalogue.admin import RegionInline
from catalogue.models import FACTS, PriceChange, ProviderMinute
from catalogue.routing import health, pinning, quota, snapshot
from catalogue.routing.model_ids import ExplicitId
from gateway.errors import ApiError
from tests.factories import forget_health, forget_snapshot
from tests.page_text import plain
from tests.seeding import Entry, Seed

Row = models.Provider | models.Model | models.Region
ANY_REQUEST = RequestFactory().get("/")


@pytest.mark.parametrize("field", ["base_url", "credential_env", "extra_env", "extra_headers", "auth_header", "slug"])
def test_staff_cannot_change_where_credentials_are_sent(field: str) -> None:
    assert field in site.get_model_admin(models.Provider).get_readonly_fields(ANY_REQUEST)


def test_staff_read_how_long_a_provider_keeps_prompts(seed: Seed, llama: Entry, admin_client: Client) -> None:
    retention = {"days": 30, "source": "https://acme.example/privacy", "as_of": "2026-11-29"}
    llama["providers"][0]["retention"] = retention
    seed(llama)
    provider = models.Provider.objects.get()
    shown = plain(admin_client.get(reverse("admin:catalogue_provider_change", args=[provider.pk])).text)
    assert "Retention days: 30" in shown
    assert "Retention source: https://acme.example/privacy" in shown


@pytest.mark.parametrize("table", [models.Provider, models.Model])
def test_facts_on_data_are_read_in_the_admin_and_changed_in_the_file(
    seed: Seed, llama: Entry, admin_client: Client, table: type[Row]
) -> None:
    llama["providers"][0] |= {"storage": ["FR", "DE"], "transfer": "scc", "confidential": "tee"}
    llama["models"][0]["retention"] = "none"
    seed(llama)
    row = table._default_manager.get()
    shown = plain(admin_client.get(reverse(f"admin:catalogue_{table._meta.model_name}_change", args=[row.pk])).text)
    wanted = {
        models.Provider: ('Storage countries: ["DE", "FR"]', "Transfer basis: standard contractual clauses"),
        models.Model: ("Retention days: 0", "Retention source: -"),
    }
    assert [one for one in wanted[table] if one not in shown] == []
    columns = {field.name for field in table._meta.fields if field.name.startswith(tuple(FACTS))}
    assert columns <= {*site.get_model_admin(table).get_readonly_fields(ANY_REQUEST)}


def test_a_list_that_only_seeding_checks_is_not_editable() -> None:
    assert "refused_parameters" in site.get_model_admin(models.Provider).get_readonly_fields(ANY_REQUEST)


@pytest.mark.parametrize("field", ["base_url", "upstream_region", "locode", "is_default"])
def test_the_target_of_a_route_is_not_editable(field: str) -> None:
    assert field in site.get_model_admin(models.Region).get_readonly_fields(ANY_REQUEST)
    assert field in RegionInline.readonly_fields


@pytest.mark.parametrize("table", [models.Provider, models.Model, models.Region])
def test_offers_come_and_go_by_seeding(table: type[models.Provider]) -> None:
    admin = site.get_model_admin(table)
    assert not admin.has_add_permission(ANY_REQUEST)
    assert not admin.has_delete_permission(ANY_REQUEST)


def test_staff_switch_a_model_off_and_workers_learn_of_it(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    model, region, before = models.Model.objects.get(), models.Region.objects.get(), changes.version()
    edit(admin_client, model, state="disabled")
    assert models.Model.objects.get().state == "disabled"
    assert models.Region.objects.get() == region
    assert changes.version() > before


def test_the_history_says_what_a_field_was_changed_to(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    provider = models.Provider.objects.get()
    edit(admin_client, provider, status_override="down", name="Acme AI")
    edit(admin_client, provider, status_override="", eu_native="")
    assert history(provider) == [
        "Changed Name to Acme AI and Status override to down.",
        "Changed EU native to False and Status override to nothing.",
    ]


def test_prices_that_staff_edit_have_a_history(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    region, before = models.Region.objects.get(), changes.version()
    edit(admin_client, region, prompt_per_1m_tokens="0.65", currency="USD")
    page = edit(admin_client, region.model, **{"regions-0-prompt_per_1m_tokens": ""})
    newest, middle, *_ = PriceChange.objects.filter(field="prompt_per_1m_tokens").order_by("-id")
    assert (middle.old, middle.currency_old, middle.new, middle.currency_new) == (
        Decimal("0.6"),
        "EUR",
        Decimal("0.65"),
        "USD",
    )
    assert (newest.old, newest.currency_old, newest.new, newest.currency_new) == (Decimal("0.65"), "USD", None, "")
    assert newest.changed_by_name == middle.changed_by_name == page.wsgi_request.user.get_username()
    assert changes.version() > before
    listing = reverse("admin:catalogue_pricechange_changelist")
    for page in (
        admin_client.get(reverse("admin:catalogue_region_change", args=[region.pk])),
        admin_client.get(listing, {"q": "acme/meta/llama/global"}),
    ):
        assert "0.65 USD" in page.text
        assert newest.changed_by_name in page.text
    for other in ("another", "acme/meta/llama"):
        assert "0.65 USD" not in admin_client.get(listing, {"q": other}).text


def test_tiers_that_staff_edit_are_exact_and_have_a_history(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    region = models.Region.objects.get()
    tier = '{"above_prompt_tokens": 1000, "prompt_per_1m_tokens": %s, "completion_per_1m_tokens": "1.8"}'
    edit(admin_client, region, price_tiers=f"[{tier % '0.1234567891'}]")
    edit(admin_client, region, daily_token_quota="5")
    (kept,) = models.Region.objects.get().price_tiers
    assert kept == {
        "above_prompt_tokens": 1000,
        "prompt_per_1m_tokens": "0.1234567891",
        "completion_per_1m_tokens": "1.80",
    }
    edit(admin_client, region.model, **{"regions-0-price_tiers": f"[{tier % '1.2'}]"})
    first, second = PriceChange.objects.filter(field="tiers[1000].prompt_per_1m_tokens").order_by("id")
    assert (first.old, first.new) == (None, Decimal("0.1234567891"))
    assert (second.old, second.new) == (first.new, Decimal("1.2"))
    edit(admin_client, region, price_tiers="")
    assert models.Region.objects.get().price_tiers == []


@pytest.mark.parametrize(
    ("tiers", "reason"),
    [
        ("[", "Enter a valid JSON."),
        ('{"above_prompt_tokens": 1}', "Expected a list of items"),
        ("[1]", "tiers[0]: must be a table"),
        ('[{"above_prompt_tokens": 0}]', "tiers[0].above_prompt_tokens: Ensure this value is greater than or equal"),
        (
            '[{"above_prompt_tokens": 9, "prompt_per_1m_tokens": 1.5}]',
            "tiers[0].completion_per_1m_tokens: must be stated in a tier, as next to the tiers",
        ),
        ('[{"above_prompt_tokens": 9, "prompt_per_1m_tokens": NaN}]', "prompt_per_1m_tokens: must be a number"),
    ],
)
def test_tiers_are_held_to_the_rules_of_a_file(
    seed: Seed, llama: Entry, admin_client: Client, tiers: str, reason: str
) -> None:
    seed(llama)
    region = models.Region.objects.get()
    with pytest.raises(AssertionError, match=re.escape(reason)):
        edit(admin_client, region, price_tiers=tiers)
    assert models.Region.objects.get().price_tiers == []


def test_the_price_history_is_only_looked_at(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    change = PriceChange.objects.first()
    assert change is not None
    url = reverse("admin:catalogue_pricechange_change", args=[change.pk])
    assert admin_client.get(url).status_code == 200
    assert admin_client.post(url, {"new": "1"}).status_code == 403
    assert admin_client.get(reverse("admin:catalogue_pricechange_add")).status_code == 403


def test_a_model_is_made_unavailable_with_a_reason(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    model, before = models.Model.objects.get(), changes.version()
    page = act(admin_client, model, "make_unavailable", reason="Moving house.")
    model.refresh_from_db()
    assert (model.state, model.unavailable_reason) == ("unavailable", "Moving house.")
    assert changes.version() > before
    assert history(model) == ["Unavailable for now: Moving house."]
    assert "Unavailable for now: Moving house. (acme/meta/llama)" in page.text
    act(admin_client, model, "serve")
    model.refresh_from_db()
    assert (model.state, model.unavailable_reason) == ("served", "")


@pytest.mark.parametrize("table", [models.Model, models.Region])
def test_disabling_takes_a_reason_and_keeps_it(
    seed: Seed, llama: Entry, admin_client: Client, table: type[models.Model] | type[models.Region]
) -> None:
    seed(llama)
    row, before = table._default_manager.get(), changes.version()
    assert "give a reason" in act(admin_client, row, "disable").text
    assert (table._default_manager.get().state, changes.version(), history(row)) == ("served", before, [])
    act(admin_client, row, "disable", reason="It lies.")
    assert table._default_manager.get().state == "disabled"
    assert history(row) == ["Disabled: It lies."]
    act(admin_client, row, "serve")
    assert table._default_manager.get().state == "served"
    assert changes.version() == before + 2


def test_staff_hold_a_route_and_bring_it_back(
    seed: Seed, llama: Entry, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama["models"][0]["regions"] = [{"locode": "global", "daily_token_quota": 5000}]
    seed(llama)
    region, today = models.Region.objects.get(), date(2026, 11, 20)
    monkeypatch.setattr(timezone, "now", lambda: datetime(2026, 11, 20, 23, 59, tzinfo=UTC))
    quota.count(region.pk, 1200, today)
    assert "1,200 of 5,000" in admin_client.get(listing(region)).text
    page = act(admin_client, region, "hold_today", reason="Too slow.")
    assert "the remaining 3,800 tokens of 2026-11-20 are spent" in page.text
    assert "5,000 of 5,000 (held until midnight UTC)" in page.text
    assert quota.held([region], today) == {region.pk}
    page = act(admin_client, region, "reset_today")
    assert "0 of 5,000" in page.text
    assert quota.held([region], today) == frozenset()
    assert history(region) == [
        "Held until midnight UTC: the remaining 3,800 tokens of 2026-11-20 are spent. Too slow.",
        "Quota reset: 5,000 tokens of 2026-11-20 are forgotten.",
    ]


def test_a_route_without_a_quota_cannot_be_held(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    region = models.Region.objects.get()
    page = act(admin_client, region, "hold_today")
    assert "Not held, for it has no daily quota to spend: disable it instead. (acme/meta/llama/global)" in page.text
    assert history(region) == []
    assert "no quota" in admin_client.get(reverse("admin:catalogue_region_change", args=[region.pk])).text


def test_who_may_only_look_is_offered_no_action(seed: Seed, llama: Entry, client: Client) -> None:
    seed(llama)
    viewer = User.objects.create_user("viewer@example.com", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_region"))
    client.force_login(viewer)
    act(client, models.Region.objects.get(), "disable", reason="I can.")
    assert models.Region.objects.get().state == "served"


def test_providers_show_their_published_status_and_why(seed: Seed, llama: Entry, admin_client: Client) -> None:
    seed(llama)
    provider = models.Provider.objects.get()
    forget_health()
    assert 'class="field-status">no calls<' in admin_client.get(listing(provider)).text
    for failed in [True, False, False, False, False]:
        health.note("acme", failed=failed)
    health.flush()
    assert 'title="1 of 5 attempts failed in 5 minutes">degraded<' in admin_client.get(listing(provider)).text
    page = f"{listing(provider)}{provider.pk}/change/"
    assert "degraded (1 of 5 attempts failed in 5 minutes)" in admin_client.get(page).text
    edit(admin_client, provider, status_override="down")
    assert "1 of 5 failed" in admin_client.get(listing(provider)).text
    assert "down (set by staff or by the catalogue&#x27;s file)" in admin_client.get(page).text


def test_a_provider_that_fails_is_said_to_in_red_with_the_last_failure(
    seed: Seed, llama: Entry, admin_client: Client
) -> None:
    seed(llama)
    forget_health()
    page = reverse("admin:catalogue_provider_change", args=[models.Provider.objects.get().pk])
    for _ in range(3):  # too few for a status, which stays healthy
        health.note("acme", failed=True, words="Provider 'acme' answered with <HTTP> 500.")
    health.flush()
    assert '<strong class="failing">3 of 3 failed</strong>' in admin_client.get(page).text
    assert "UTC: Provider &#x27;acme&#x27; answered with &lt;HTTP&gt; 500." in admin_client.get(page).text


def test_staff_disable_a_provider_and_serve_it_again_whatever_is_seeded(
    seed: Seed, llama: Entry, admin_client: Client
) -> None:
    llama["models"].append({**llama["models"][0], "id": "meta/off", "state": "disabled"})
    seed(llama)
    provider, before = models.Provider.objects.get(), changes.version()
    assert "give a reason" in act(admin_client, provider, "disable").text
    assert changes.version() == before
    act(admin_client, provider, "disable", reason="It answers in tongues.")
    assert changes.version() == before + 1
    assert 'title="It answers in tongues.">disabled<' in admin_client.get(listing(provider)).text
    llama["providers"][0]["name"] = "Acme, seeded again"
    for file in (llama, llama):
        seed(file, prune=True)
        assert [refusal_of(slug) for slug in ("llama", "off")] == [
            (503, "Model 'acme/meta/llama' is unavailable: It answers in tongues."),
            (404, "Model 'acme/meta/off' is disabled."),
        ]
    act(admin_client, provider, "serve_again")
    assert [refusal_of(slug) for slug in ("llama", "off")] == [None, (404, "Model 'acme/meta/off' is disabled.")]
    assert history(provider) == ["Disabled: It answers in tongues.", "Served again."]
    assert models.Provider.objects.get().name == "Acme, seeded again"


def test_a_providers_page_leads_to_a_form_that_keeps_what_it_was_given(
    seed: Seed, llama: Entry, admin_client: Client
) -> None:
    seed(llama)
    provider = models.Provider.objects.get()
    page = reverse("admin:catalogue_provider_change", args=[provider.pk])
    form = reverse("admin:catalogue_provider_service", args=[provider.pk])
    assert f'<a href="{form}">Disable provider</a>' in admin_client.get(page).text
    refused = admin_client.post(form, {"disable": "", "reason": " "})
    assert (refused.status_code, refusal_of("llama")) == (422, None)
    assert "This field is required." in refused.text
    assert admin_client.post(form, {"disable": "", "reason": "It answers in tongues."})["Location"] == page
    assert refusal_of("llama") == (503, "Model 'acme/meta/llama' is unavailable: It answers in tongues.")
    assert f'<a href="{form}">Serve again</a>' in admin_client.get(page).text
    assert "It answers in tongues." in admin_client.get(form).text
    assert admin_client.post(form, {"serve": ""})["Location"] == page
    assert refusal_of("llama") is None
    assert history(provider) == ["Disabled: It answers in tongues.", "Served again."]


def test_the_form_is_for_who_may_change_providers(seed: Seed, llama: Entry, client: Client) -> None:
    seed(llama)
    viewer = User.objects.create_user("viewer@example.com", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_provider"))
    client.force_login(viewer)
    provider = models.Provider.objects.get()
    form = reverse("admin:catalogue_provider_service", args=[provider.pk])
    assert client.post(form, {"disable": "", "reason": "I can."}).status_code == 403
    assert form not in client.get(reverse("admin:catalogue_provider_change", args=[provider.pk])).text
    assert not models.Provider.objects.exclude(disabled_reason="").exists()


def refusal_of(slug: str) -> tuple[int, str] | None:
    """Returns the refusal of a request for this model of Acme's, if it is refused."""
    forget_snapshot()
    snapshot.refresh()
    try:
        pinning.pin(snapshot.current(), ExplicitId("acme", f"meta/{slug}", None), date(2026, 11, 22))
    except ApiError as error:
        return error.status, error.message
    return None


def test_a_provider_shows_its_last_day_and_whether_it_is_configured(
    seed: Seed, llama: Entry, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(llama)
    provider = models.Provider.objects.get()
    page = reverse("admin:catalogue_provider_change", args=[provider.pk])
    now = timezone.now()
    ProviderMinute.objects.create(minute=now - timedelta(hours=3), provider="acme", attempts=7, failures=2)
    models.Provider.objects.update(credential_env="ACME_KEY")
    monkeypatch.setenv("ACME_KEY", "a secret")
    text = admin_client.get(page).text
    assert f"{now - timedelta(hours=3):%d %b %H:00}: 7 sent, 2 failed" in text
    assert "Configured." in text
    assert "a secret" not in text
    monkeypatch.delenv("ACME_KEY")
    assert "Not configured: ACME_KEY not set in the environment." in admin_client.get(page).text
    assert 'alt="False"' in admin_client.get(listing(provider)).text


@pytest.mark.parametrize("table", ["provider", "model", "region", "place", "gridintensity", "exchangerate"])
def test_every_list_and_form_opens(seed: Seed, llama: Entry, admin_client: Client, table: str) -> None:
    seed(llama, "{places: {FRPAR: {name: Paris, country: FR, eu: true, eea: true}}, grid: {FR: 44}}")
    seed("exchange_rates: {rates: {USD: 1.1}}")
    row = apps.get_model("catalogue", table)._default_manager.get()
    assert admin_client.get(reverse(f"admin:catalogue_{table}_changelist"), {"q": "a"}).status_code == 200
    assert admin_client.get(reverse(f"admin:catalogue_{table}_change", args=[row.pk])).status_code == 200


def listing(row: Row) -> str:
    return reverse(f"admin:catalogue_{row._meta.model_name}_changelist")


def edit(client: Client, row: Row, **fields: str) -> Any:
    """Posts the row's page as a browser would, with these inputs changed."""
    url = reverse(f"admin:catalogue_{row._meta.model_name}_change", args=[row.pk])
    page = client.get(url)
    inputs = page.context["adminform"].form.initial | {
        name: value for formset in page.context["inline_admin_formsets"] for name, value in _inputs(formset.formset)
    }
    sent = {name: value for name, value in inputs.items() if value is not None} | fields
    as_typed = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in sent.items()}
    answer = client.post(url, as_typed)
    assert answer.status_code == 302, answer.context["errors"]
    return answer


def act(client: Client, row: Row, action: str, reason: str = "") -> Any:
    """Runs an action on one row, and returns the list that follows."""
    form = {"action": action, "_selected_action": [str(row.pk)], "reason": reason}
    return client.post(listing(row), form, follow=True)


def history(row: Row) -> list[str]:
    """Returns the history that the admin shows of a row, oldest first."""
    entries = LogEntry.objects.filter(object_id=str(row.pk), content_type__model=row._meta.model_name)
    return [entry.get_change_message() for entry in entries.order_by("pk")]


def _inputs(formset: "BaseInlineFormSet[Any, Any, Any]") -> Iterator[tuple[str, Any]]:
    for form in [formset.management_form, *formset.forms]:
        for name in form.fields:
            yield form.add_prefix(name), form[name].value()


def test_a_regions_own_base_url_is_filled_from_the_environment(
    seed: Seed, llama: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_RESOURCE", "ours")
    url = "https://{resource}-{upstream_region}.example"
    llama["providers"][0]["extra_env"] = {"resource": "ACME_RESOURCE"}
    llama["models"][0]["regions"] = [{"locode": "FRPAR", "upstream_region": "fr", "base_url": url}]
    seed(llama)
    forget_snapshot()
    snapshot.refresh()
    route = snapshot.current().offers["acme", "meta/llama"].routes["FRPAR"]
    forget_snapshot()
    assert route.base_url == "https://ours-fr.example"
