"""Why a request failed, in plain words, and what its sender can do (docs/api.md#error-codes)."""

from typing import NamedTuple

from billing.request_failures import RequestFailure
from gateway.request_events import Outcome


class Explained(NamedTuple):
    """What happened, and what to do."""

    why: str
    what_to_do: str


AGAIN = "Send it again, after a pause that grows with each try."
MEND = "Correct the request as the message says, and send it again."
BY_CODE = {
    "authentication_error": Explained(
        "The request came without an API key.", "Send the header `Authorization: Bearer` with a key from the Keys page."
    ),
    "api_key_malformed": Explained(
        "What was sent as the API key is none of this gateway's.",
        "Send a key from the Keys page as it was shown: `sk-gw-` and 43 characters, without quotes or blanks.",
    ),
    "api_key_not_registered": Explained(
        "The API key is not, or no longer, one of an account.", "Create a key on the Keys page and use that."
    ),
    "api_key_expired": Explained("The API key has expired.", "Create a new key on the Keys page and use that."),
    "insufficient_credits": Explained(
        "The account's balance was not above zero.",
        "Ask whoever runs the gateway for credit; the Credit page has the balance.",
    ),
    "rate_limit_exceeded": Explained(
        "More requests or tokens came than the limit allows in a minute.",
        "Wait as long as the answer's header `Retry-After` said, and spread requests out; the message names the limit.",
    ),
    "request_too_large": Explained("The body is larger than the gateway takes.", "Send less in one request."),
    "context_length_exceeded": Explained(
        "The prompt and the answer do not fit into the model's context window.",
        "Shorten the conversation, or use a model with a larger window: the Models page has each one's.",
    ),
    "not_found": Explained(
        "There is no such path, record or model here.", "Copy the model's id from the Models page, or correct the path."
    ),
    "alias_not_found": Explained(
        "The account has no alias of that name.", "Create it, or correct it, on the Aliases page."
    ),
    "invalid_alias_name": Explained(
        "That cannot be an alias's name.", "Use lower case letters, digits, `-` and `_`, at most 64 of them."
    ),
    "model_not_found": Explained("The model is no longer offered.", "Use another model of the Models page."),
    "model_unavailable": Explained(
        "The model is unavailable for now.",
        "Use another model, or try again later; the message says why where that is known.",
    ),
    "provider_unavailable": Explained(
        "The route that was asked for is not served, or none of the providers answered.",
        "Ask for a region of the Models page. A pinned request is never sent elsewhere.",
    ),
    "provider_error": Explained(
        "The provider failed, or what it answered could not be used.",
        f"{AGAIN} The message quotes what the provider said.",
    ),
    "provider_not_configured": Explained(
        "The gateway has no credential for that provider.", "Use another provider, or ask whoever runs the gateway."
    ),
    "provider_quota_exhausted": Explained(
        "What may be sent to that route in a day is used up.", "Wait until midnight UTC, or use another route."
    ),
    "provider_timeout": Explained("The provider did not answer in time.", AGAIN),
    "cost_unresolvable": Explained(
        "The provider's count of tokens contradicts itself, so the request has no price. It was not billed.",
        "Nothing: staff see the record too.",
    ),
    "service_unavailable": Explained("This part of the gateway was just starting or stopping.", "Send it again."),
    "alias_exists": Explained("The account has an alias of that name.", "Choose another name, or change that alias."),
    "alias_limit_reached": Explained("All of the account's alias slots are in use.", "Delete an alias first."),
    "invalid_alias_target": Explained("The alias would lead nowhere.", "Choose an id of the Models page."),
    "method_not_allowed": Explained(
        "The path exists, but not with that method.", "Use the method that the message names."
    ),
    "internal_server_error": Explained(
        "Something failed on the gateway's side.",
        f"{AGAIN} If it stays, tell whoever runs the gateway this request's id.",
    ),
    "invalid_request_error": Explained("The request breaks a rule of the API, or the provider refused it.", MEND),
}
OF_THE_PROVIDER = Explained("The provider refused the request; the code is its own word.", MEND)
LEFT = Explained("The client closed the connection before its answer began.", "Nothing, if that was meant.")


def explained(failure: RequestFailure) -> Explained:
    """Of one failure."""
    if failure.outcome == Outcome.CLIENT_LEFT:
        return LEFT
    return BY_CODE.get(failure.code, OF_THE_PROVIDER)
