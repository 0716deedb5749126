from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from gateway.money import ExactDecimalField

from ..pricing import ENERGY_PLACES
from .facts import as_of_column, days_column, source_column
from .names import canonical_model_id
from .provider import Provider

OVERWRITTEN_BY_SEEDING = "Overwritten by the next seed. For a permanent change, edit the catalogue file."


class Modality(models.TextChoices):
    """Lists what a model can be used for. Empty in the table means unknown."""

    CHAT = "chat", "chat"
    COMPLETION = "completion", "completion"
    EMBEDDING = "embedding", "embedding"
    RESPONSES = "responses", "responses"
    REALTIME = "realtime", "realtime"


# The modalities that an endpoint of the gateway serves.
WITH_ENDPOINT = (Modality.CHAT, Modality.COMPLETION, Modality.EMBEDDING, Modality.RESPONSES)


class State(models.TextChoices):
    """Lists the states of an offer."""

    SERVED = "served", "served"
    UNAVAILABLE = "unavailable", "unavailable for now"
    DISABLED = "disabled", "disabled"


class MaxTokensField(models.TextChoices):
    """Lists the fields in which an upstream accepts the limit of output tokens."""

    MAX_TOKENS = "max_tokens", "max_tokens"
    MAX_COMPLETION_TOKENS = "max_completion_tokens", "max_completion_tokens"


class Thinking(models.TextChoices):
    """Lists the ways to set how much a model thinks. The first two are in Anthropic's dialect."""

    BUDGET = "budget", "a budget of tokens"
    ADAPTIVE = "adaptive", "an effort; it decides by itself"
    EFFORT = "effort", "an effort, of which one is none"


class Model(models.Model):
    """Is an offer: a model that a provider serves."""

    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="models")
    canonical_id = models.CharField(max_length=255, validators=[canonical_model_id], help_text="{creator}/{model}")
    name = models.CharField(max_length=200)
    upstream_model = models.CharField(max_length=255, help_text="What the upstream calls it.")
    modality = models.CharField(max_length=20, choices=Modality, blank=True, help_text="Empty: unknown.")
    context_length = models.PositiveIntegerField(null=True, blank=True)
    max_output_tokens = models.PositiveIntegerField(null=True, blank=True)
    streaming = models.BooleanField(null=True, blank=True)
    function_calling = models.BooleanField(null=True, blank=True)
    image_input = models.BooleanField(null=True, blank=True)
    max_tokens_field = models.CharField(max_length=30, choices=MaxTokensField, default=MaxTokensField.MAX_TOKENS)
    thinking = models.CharField(
        max_length=10, choices=Thinking, default=Thinking.BUDGET, help_text="What `reasoning_effort` becomes there."
    )
    aggregate = models.BooleanField(
        default=True, help_text="Whether long whole answers are streamed from the upstream and put together."
    )
    state = models.CharField(max_length=20, choices=State, default=State.SERVED, help_text=OVERWRITTEN_BY_SEEDING)
    unavailable_reason = models.CharField(max_length=500, blank=True, help_text="Shown to clients.")
    retires_on = models.DateField(null=True, blank=True, help_text="After this day the offer counts as disabled.")
    energy_per_token_wh = ExactDecimalField("Wh per token", places=ENERGY_PLACES, null=True, blank=True)
    energy_per_prompt_token_wh = ExactDecimalField("Wh per prompt token", places=ENERGY_PLACES, null=True, blank=True)
    energy = models.JSONField(null=True, blank=True, help_text="By kind of token. Wins over the two above.")
    created = models.BigIntegerField(
        "created (Unix seconds)", null=True, blank=True, help_text="Empty: when it was first offered."
    )
    first_offered_at = models.DateTimeField(
        default=timezone.now, editable=False, help_text="When this gateway took the offer in; seeding again leaves it."
    )
    owned_by = models.CharField(max_length=200, blank=True, help_text="Empty: the creator.")
    retention_days = days_column(
        "For how long prompts and answers of this model are kept. 0: not at all. Empty: as the provider states."
    )
    retention_source = source_column()
    retention_as_of = as_of_column()

    class Meta:
        ordering: ClassVar = ["provider", "canonical_id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider", "canonical_id"], name="one_offer_per_provider_and_model"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="model_state_is_known"),
            models.CheckConstraint(condition=Q(modality__in=["", *Modality.values]), name="model_modality_is_known"),
            models.CheckConstraint(condition=~Q(context_length=0), name="context_length_unknown_is_null"),
            models.CheckConstraint(condition=~Q(max_output_tokens=0), name="max_output_unknown_is_null"),
        ]

    def __str__(self) -> str:
        return f"{self.provider.slug}/{self.canonical_id}"
