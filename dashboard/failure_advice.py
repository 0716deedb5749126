"""Why a request failed, in plain words, and what its sender can do (docs/api.md#error-codes)."""

from typing import NamedTuple

from billing.usage.request_failures import RequestFailure
from gateway.observing.request_events import Outcome


class Explained(NamedTuple):
    """What happened, and what to do."""

    why: str
    what_to_do: str


AGAIN = "Retry with exponential backoff."
MEND = "Correct the request as the message says and send it again."
BY_CODE = {
    "authentication_error": Explained(
        "The request came without an API key.",
        "Send an Authorization: Bearer header with a key from the API keys page.",
    ),
    "api_key_malformed": Explained(
        "The API key is not a key of this gateway.",
        "Send the key as it was shown: sk-gw- and 43 characters, without quotes or spaces.",
    ),
    "api_key_not_registered": Explained(
        "The API key does not exist or has been deleted.", "Create a key on the API keys page and use it."
    ),
    "api_key_expired": Explained("The API key has expired.", "Create a new key on the API keys page and use it."),
    "insufficient_credits": Explained(
        "The account's balance was not above zero.",
        "Top up the account: see the Billing page.",
    ),
    "rate_limit_exceeded": Explained(
        "There were more requests or tokens than a limit allows, the gateway's or the provider's.",
        "Wait as long as the Retry-After header says and spread requests out. The message names the limit.",
    ),
    "request_too_large": Explained("The request body is too large.", "Send less in one request."),
    "context_length_exceeded": Explained(
        "The prompt and the answer do not fit in the model's context window.",
        "Shorten the conversation, or choose a model with a larger context window on the Models page.",
    ),
    "not_found": Explained(
        "There is no such path, record or model.", "Copy the model's id from the Models page, or correct the path."
    ),
    "alias_not_found": Explained(
        "The account has no alias of that name.", "Create it on the Aliases page, or correct the name."
    ),
    "invalid_alias_name": Explained("The alias name is not valid.", "Use up to 64 lowercase letters, digits, - and _."),
    "model_not_found": Explained("The model is no longer offered.", "Choose another model on the Models page."),
    "model_unavailable": Explained(
        "The model is currently unavailable.",
        "Use another model or try again later. The message says why, if that is known.",
    ),
    "provider_unavailable": Explained(
        "The requested route is not served, or none of the providers answered.",
        "Choose a region on the Models page. A pinned request is never sent elsewhere.",
    ),
    "provider_error": Explained(
        "The provider failed, or its answer could not be used.",
        f"{AGAIN} The message quotes what the provider said.",
    ),
    "provider_not_configured": Explained(
        "The gateway has no credentials for this provider.", "Use another provider, or ask the gateway's operator."
    ),
    "provider_quota_exhausted": Explained(
        "The daily quota of this route is used up.", "Wait until midnight UTC, or use another route."
    ),
    "provider_timeout": Explained("The provider did not answer in time.", AGAIN),
    "cost_unresolvable": Explained(
        "The provider's token counts contradict each other, so the cost is unknown. Nothing was charged.",
        "Nothing. The gateway's operator sees the record too.",
    ),
    "service_unavailable": Explained("The gateway was starting or stopping.", "Send it again."),
    "alias_exists": Explained(
        "The account already has an alias of that name.", "Choose another name, or change that alias."
    ),
    "alias_limit_reached": Explained("The account has as many aliases as it may have.", "Delete an alias first."),
    "invalid_alias_target": Explained(
        "The alias target does not exist or cannot be served.", "Choose an id from the Models page."
    ),
    "method_not_allowed": Explained("The path does not support this method.", "Use the method that the message names."),
    "internal_server_error": Explained(
        "Something went wrong in the gateway.",
        f"{AGAIN} If it keeps failing, give the gateway's operator this request's id.",
    ),
    "invalid_request_error": Explained("The request is not valid, or the provider refused it.", MEND),
}
OF_THE_PROVIDER = Explained("The provider refused the request. The error code is the provider's.", MEND)
LEFT = Explained("The client closed the connection before the answer began.", "Nothing, if that was intended.")


def explained(failure: RequestFailure) -> Explained:
    """Of one failure."""
    if failure.outcome == Outcome.CLIENT_LEFT:
        return LEFT
    return BY_CODE.get(failure.code, OF_THE_PROVIDER)
