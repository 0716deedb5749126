"""`DELETE /v1/aliases/{name}` is final, and frees the name at once."""

from aliases.models import Alias, AliasEvent
from tests.aliases.caller import ALIASES, CHUNKS, ECHO, NOT_FOUND, Caller


def test_it_answers_204_without_a_body(caller: Caller) -> None:
    caller.create("fast")
    reply = caller.delete("fast")
    assert (reply.status, reply.body) == (204, None)
    assert "Content-Length" not in reply.headers  # RFC 9110, 8.6: none on a 204
    assert not Alias.objects.exists()


def test_it_is_gone_everywhere(caller: Caller) -> None:
    caller.create("fast")
    caller.delete("fast")
    assert caller.read() == {"aliases": [], "quota": {"used": 0, "max": 5}}
    for method, tail in [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/stats"), ("GET", "/history")]:
        reply = caller.send(method, f"{ALIASES}/fast{tail}", {"name": "quick"})
        assert reply.refusal == NOT_FOUND
        assert "alias/fast" in reply.message


def test_its_events_stay_for_staff(caller: Caller) -> None:
    created = caller.create("fast", ECHO)
    caller.delete("fast")
    newest = AliasEvent.objects.filter(alias_id=created["id"])[0]
    assert (newest.event_type, newest.old_name, newest.old_target) == ("deleted", "fast", ECHO)
    assert (newest.new_name, newest.new_target) == (None, None)


def test_the_name_is_free_at_once_for_another_alias(caller: Caller) -> None:
    first = caller.create("fast", ECHO)
    caller.delete("fast")
    second = caller.create("fast", CHUNKS)
    assert second["id"] != first["id"]
    assert caller.events("fast") == [{"event_type": "created", "new_name": "fast", "new_target": CHUNKS}]


def test_a_body_is_not_looked_at(caller: Caller) -> None:
    caller.create("fast")
    assert caller.send("DELETE", f"{ALIASES}/fast", b"{").status == 204
