"""Checks the names of providers, models and countries."""

from django.core.validators import RegexValidator

country_code = RegexValidator(r"^[A-Z]{2}\Z", "An ISO 3166-1 alpha-2 code: two capital letters.")
SEGMENT = r"[a-z0-9][a-z0-9._-]*"
provider_slug = RegexValidator(rf"^{SEGMENT}\Z", "Lowercase letters, digits, `.`, `_`, `-`, the first no punctuation.")
canonical_model_id = RegexValidator(rf"^{SEGMENT}/{SEGMENT}\Z", "Exactly {creator}/{model}, in lowercase.")
