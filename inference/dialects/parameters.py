"""Fields of a request that an upstream does not take: left out where they change nothing, refused where they do.

Clients send many fields at their defaults. `USUAL` is the one table of those, by OpenAI's names; a dialect, or the
provider's entry in the catalogue, says which fields are not taken.
"""

from collections.abc import Collection, Mapping
from typing import Any

from gateway.errors import InvalidRequest

Json = dict[str, Any]

# Values that ask for what every model does without the field.
USUAL: Mapping[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "functions": ([],),
    "logit_bias": ({},),
    "logprobs": (False,),
    "modalities": (["text"], []),
    "n": (1,),
    "parallel_tool_calls": (True,),
    "presence_penalty": (0,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "stop": ([],),
    "store": (False,),
    "suffix": ("",),
    "temperature": (1,),
    "tool_choice": ("auto",),
    "tools": ([],),
    "top_logprobs": (0,),
    "top_p": (1,),
    "verbosity": ("medium",),
}
# Fields that say nothing without another one, and their values that are no demand for it.
NOTHING_WITHOUT: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "function_call": ("functions", ("auto", "none")),
    "parallel_tool_calls": ("tools", (True, False)),
    "tool_choice": ("tools", ("auto", "none")),
}
# Fields that cost or save the provider something, or tell it who asks. No answer depends on them.
HINTS = frozenset({"metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user"})


def changes_nothing(body: Mapping[str, Any], name: str) -> bool:
    """Whether the answer is the same without the field."""
    value = body[name]
    if _is_one_of(value, USUAL.get(name, ())):
        return True
    other, values = NOTHING_WITHOUT.get(name, ("", ()))
    return _is_one_of(value, values) and not body.get(other)


def refuse_parameters(body: Mapping[str, Any], names: Collection[str]) -> None:
    """Raises InvalidRequest for the first of these fields whose value would change the answer."""
    for name in body:
        if name in names and name not in HINTS and not changes_nothing(body, name):
            raise InvalidRequest.of_field(name, "asks for what this model does not take.")


def without_parameters(body: Json, names: Collection[str]) -> tuple[Json, tuple[str, ...]]:
    """The fields that an upstream takes, and the names of the hints that it does not get: they are disclosed."""
    if body.keys().isdisjoint(names):
        return body, ()
    kept = {name: value for name, value in body.items() if name not in names}
    return kept, tuple(name for name in body if name in names and name in HINTS)


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    """Whether it is there by type as well, as far as that matters: false is not 0."""
    return any(value == other and isinstance(value, bool) is isinstance(other, bool) for other in values)
