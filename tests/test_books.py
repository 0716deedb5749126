"""The books of soak and campaign work: sound books agree, and each planted discrepancy is named."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.books import (
    Books,
    Json,
    Leaving,
    LossPeriod,
    Record,
    SeededCatalogue,
    SentRequest,
    costs_of,
    marked,
    reported_buckets,
)

BEGAN = 1_790_000_000.0
PORT = 8000
WORDS = 30
CATALOGUE: Json = {
    "exchange_rates": {"rates": {"USD": 1.0837, "GBP": 0.8571}},
    "models": [
        {
            "provider": "sim",
            "id": "test/brief",
            "pricing": {"currency": "EUR", "prompt_per_1m_tokens": 0.6123, "completion_per_1m_tokens": 1.2246},
            "regions": [{"locode": "FRPAR"}],
        },
        {
            "provider": "simanthropic",
            "id": "test/written",
            "pricing": {
                "currency": "USD",
                "prompt_per_1m_tokens": 0.6123,
                "completion_per_1m_tokens": 1.2246,
                "cache_read_per_1m_tokens": 0.0765375,
                "cache_write_per_1m_tokens": 1.3331,
                "tiers": [
                    {"above_prompt_tokens": 60, "prompt_per_1m_tokens": 1.8369, "completion_per_1m_tokens": 2.7181},
                    {"above_prompt_tokens": 90, "prompt_per_1m_tokens": 3.1, "completion_per_1m_tokens": 4.7},
                ],
            },
            "regions": [{"locode": "FRPAR", "pricing": {"currency": "GBP"}}, {"locode": "DEFRA"}],
        },
    ],
}
TEXT = " ".join(["hello"] * 20)


def id_of(marker: int) -> str:
    """Makes an id like the product's: admitted half a second after its request began."""
    return f"gen-{int((BEGAN + marker + 0.5) * 1000):012x}7000800000000000{marker:04x}"


def asked(marker: int, **fields: Any) -> SentRequest:
    """Builds a request whose stream was received whole."""
    begun = BEGAN + marker
    usual = SentRequest(
        marker, "abcd", "sim/test/brief", WORDS, True, PORT, begun, begun + 3, paced=True, status=200, id=id_of(marker)
    )
    return replace(usual, **{"whole": True, "text": TEXT, **fields})


def recorded(marker: int, **fields: Any) -> Record:
    """Builds the request's record, at the catalogue's price."""
    usage = {"prompt_tokens": WORDS, "completion_tokens": 20, "x_marker": marker}
    usual = Record(
        *(id_of(marker), "abcd", "sim", "test/brief", "FRPAR", "openai", "finished", False, json.dumps(usage)),
        *(WORDS, 0, 0, 0, 20, "EUR", "EUR", 0, 0),
        *(None, None, None, None, 1),
    )
    return priced(usual._replace(**fields))


def priced(record: Record) -> Record:
    costs = costs_of(CATALOGUE, record)
    assert costs is not None
    return record._replace(**costs._asdict())


@dataclass
class Case:
    """Holds sound books of three requests: one received whole, one left by its client, one without any answer."""

    asked: list[SentRequest]
    records: list[Record]
    called: dict[int, int]
    losses: list[LossPeriod]


LEFT: dict[str, Any] = {"whole": False, "text": "hello hello", "left": Leaving(600, True)}
UNCOUNTED: dict[str, Any] = {"upstream_usage": None, "estimated": True, "completion": 3, "ending": "client_left"}


def sound() -> Case:
    records = [recorded(1), recorded(2, **UNCOUNTED), recorded(3, **UNCOUNTED)]
    told = {"cost": float(f"{records[0].cost}e-10"), "remaining_balance": 1.0}
    gone: dict[str, Any] = {"whole": False, "text": "", "status": None, "id": None}
    return Case([asked(1, usage=told), asked(2, **LEFT), asked(3, **gone)], records, {1: 1, 2: 1, 3: 1}, [])


def compared(books: Case) -> Books:
    done = Books(books.asked, [SeededCatalogue(0.0, CATALOGUE)], books.losses, books.called)
    done.compare(books.records)
    return done


def test_sound_books_agree() -> None:
    done = compared(sound())
    assert done.wrong == []
    assert +done.figures == {
        "requests": 3,
        "records": 3,
        "answers": 2,
        "calls of the upstream": 3,
        "whole, billed once": 1,
        "cut, billed as client_left": 1,
        "billed, of which no head arrived": 1,
        "recorded with the upstream's usage": 1,
        "recomputed from the catalogue": 3,
    }


def unbilled(books: Case) -> None:
    del books.records[1]


def unbilled_whole(books: Case) -> None:
    del books.records[0]


def unbilled_of_a_client_that_stayed(books: Case) -> None:
    books.asked[1] = replace(books.asked[1], left=None)
    del books.records[1]


def unbilled_whole_answer_of_which_a_part_arrived(books: Case) -> None:
    books.asked[1] = replace(books.asked[1], streamed=False, text="")
    del books.records[1]


def unbilled_but_with_a_bill(books: Case) -> None:
    books.asked[1] = replace(books.asked[1], errors="The upstream broke. What was delivered is billed.")
    books.losses.append(LossPeriod(PORT, BEGAN, BEGAN + 10))
    del books.records[1]


def unbilled_though_a_worker_of_the_other_gateway_was_killed(books: Case) -> None:
    books.losses.append(LossPeriod(PORT + 1, BEGAN, BEGAN + 10))
    del books.records[1]


def unbilled_though_a_worker_was_killed_long_after(books: Case) -> None:
    books.losses.append(LossPeriod(PORT, BEGAN + 100, BEGAN + 101))
    del books.records[1]


def settled_under_a_new_id(books: Case) -> None:
    books.records[0] = books.records[0]._replace(id=id_of(77))


def settled_twice(books: Case) -> None:
    books.records.append(books.records[0]._replace(id=id_of(77)))


def an_estimate_settled_under_a_new_id(books: Case) -> None:
    books.records[1] = books.records[1]._replace(id="gen-" + "7c" * 16)


def an_estimate_settled_twice(books: Case) -> None:
    books.records.append(books.records[1]._replace(id=id_of(2)[:-1] + "f"))


def of_no_request(books: Case) -> None:
    books.records.append(recorded(9))


def of_nobodys_time(books: Case) -> None:
    books.asked[2] = replace(books.asked[2], began=BEGAN + 100, ended=BEGAN + 101)


def of_another_key(books: Case) -> None:
    books.records[2] = books.records[2]._replace(key="wxyz")


def of_another_model(books: Case) -> None:
    books.records[0] = priced(
        books.records[0]._replace(provider="simanthropic", model="test/written", region="DEFRA", price_currency="USD")
    )


def refused_and_billed(books: Case) -> None:
    books.asked[0] = replace(books.asked[0], status=503, whole=False, usage=None, id=None)


def billed_despite_an_error_that_denies_it(books: Case) -> None:
    books.asked[1] = replace(books.asked[1], errors="The server is restarting. Nothing was billed; please retry.")


def never_asked_of_the_upstream(books: Case) -> None:
    del books.called[1]


def asked_of_the_upstream_twice(books: Case) -> None:
    books.called[2] = 2


def received_upstream_but_never_sent(books: Case) -> None:
    books.called[99] = 1


def without_an_entry(books: Case) -> None:
    books.records[0] = books.records[0]._replace(entries=0)


def received_another_cost(books: Case) -> None:
    books.asked[0] = replace(books.asked[0], usage={"cost": 0.1})


def delivered_whole_and_taken_for_left(books: Case) -> None:
    books.records[0] = books.records[0]._replace(ending="client_left")


def billed_beyond_what_arrived(books: Case) -> None:
    books.records[1] = priced(books.records[1]._replace(completion=6))


def other_tokens_than_reported(books: Case) -> None:
    books.records[0] = priced(books.records[0]._replace(completion=19))


def other_tokens_than_received(books: Case) -> None:
    books.asked[0] = replace(books.asked[0], text=TEXT + " more")


def another_prompt_than_asked(books: Case) -> None:
    books.asked[0] = replace(books.asked[0], words=WORDS + 1)


def a_prompt_rounded_down(books: Case) -> None:
    first = books.records[0]
    assert first.prompt_cost is not None
    books.records[0] = first._replace(prompt_cost=first.prompt_cost - 1)


def a_rate_cut_off(books: Case) -> None:
    books.records[0] = books.records[0]._replace(eur_rate=10**12 - 1)


def another_cost_in_eur(books: Case) -> None:
    first = books.records[0]
    assert first.cost_eur is not None
    books.records[0] = first._replace(cost_eur=first.cost_eur + 1)


PLANTED: dict[Callable[[Case], None], list[str]] = {
    unbilled: ["left by itself, with text, and not billed"],
    unbilled_whole: ["delivered whole and not billed"],
    unbilled_of_a_client_that_stayed: ["cut by itself, with text, and not billed"],
    unbilled_whole_answer_of_which_a_part_arrived: ["its answer had begun, which is billed before"],
    unbilled_but_with_a_bill: ["the client received a bill, but none exists"],
    unbilled_though_a_worker_of_the_other_gateway_was_killed: ["with text, and not billed"],
    unbilled_though_a_worker_was_killed_long_after: ["with text, and not billed"],
    settled_under_a_new_id: [f"received the id {id_of(1)} and is recorded as {id_of(77)}"],
    settled_twice: [f"has two records: {id_of(1)} and {id_of(77)}"],
    an_estimate_settled_under_a_new_id: ["fits no request without a record", "with text, and not billed"],
    an_estimate_settled_twice: ["fits no request without a record"],
    of_no_request: ["belongs to no request"],
    of_nobodys_time: ["fits no request without a record"],
    of_another_key: ["fits no request without a record"],
    of_another_model: ["was served by simanthropic/test/written", "received the cost"],
    refused_and_billed: ["was refused and is billed"],
    billed_despite_an_error_that_denies_it: ["was told that nothing was billed"],
    never_asked_of_the_upstream: ["never reached the upstream"],
    asked_of_the_upstream_twice: ["the upstream received 2 2 times"],
    received_upstream_but_never_sent: ["received a request with 99, which no client sent"],
    without_an_entry: ["has 0 ledger entries"],
    received_another_cost: ["received the cost 0.1 and was billed"],
    delivered_whole_and_taken_for_left: ["was delivered whole but is recorded as client_left"],
    billed_beyond_what_arrived: ["was billed 6 tokens"],
    other_tokens_than_reported: ["the upstream reported (30, 0, 0, 0, 20)", "tokens for", "received the cost"],
    other_tokens_than_received: ["20 tokens for"],
    another_prompt_than_asked: ["its prompt has 31 words"],
    a_prompt_rounded_down: ["its catalogue gives"],
    a_rate_cut_off: ["its catalogue gives"],
    another_cost_in_eur: ["its catalogue gives"],
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_what_is_wrong_is_named(plant: Callable[[Case], None]) -> None:
    books = sound()
    plant(books)
    found = compared(books).wrong
    assert len(found) == len(PLANTED[plant])
    for words in PLANTED[plant]:
        assert any(words in line for line in found), found


@pytest.mark.parametrize("port", [PORT, None])
def test_a_worker_killed_in_its_time_excuses_what_was_cut_and_nothing_else(port: int | None) -> None:
    books = sound()
    books.losses.append(LossPeriod(port, BEGAN + 8, BEGAN + 8.1))
    del books.records[1]
    done = compared(books)
    assert (done.wrong, done.figures["left while a worker was killed, not billed"]) == ([], 1)
    del books.records[0]
    assert len(compared(books).wrong) == 1


@pytest.mark.parametrize(
    ("errors", "text", "kind"),
    [
        ("What was delivered is billed once at most.", "hello", "cut and told that it is billed at most, not billed"),
        ("", "", "left before any text, not billed"),
    ],
)
def test_what_may_be_unbilled_is_counted(errors: str, text: str, kind: str) -> None:
    books = sound()
    books.asked[1] = replace(books.asked[1], errors=errors, text=text)
    del books.records[1]
    done = compared(books)
    assert (done.wrong, done.figures[kind]) == ([], 1)


def test_a_tariff_prices_what_was_admitted_after_it_began() -> None:
    """Records are right if their price was in force when they were admitted, and wrong if it began later."""
    dearer = json.loads(json.dumps(CATALOGUE).replace("0.6123", "0.7009"))
    books = sound()
    for began, wrong in ((BEGAN, 0), (BEGAN + 2, 1)):
        done = Books(books.asked, [SeededCatalogue(began, CATALOGUE), SeededCatalogue(0.0, dearer)], (), books.called)
        done.compare(books.records)
        assert len(done.wrong) == wrong


WRITTEN = recorded(1)._replace(
    provider="simanthropic", model="test/written", region="DEFRA", price_currency="USD", currency="USD", completion=7
)


@pytest.mark.parametrize(
    ("tokens", "currency", "expected"),
    [
        # 30 * 0.6123 + 5 * 0.0765375 + 20 * 1.3331 (5 of them for an hour), and 7 * 1.2246, in millionths of a dollar;
        # in EUR times 0.92276460275.
        ((5, 15, 5), "USD", (454137, 85722, 539859, 498162)),
        ((0, 0, 0), "USD", (183690, 85722, 269412, 248604)),
        # A tier has no cache prices of its own: 61 * 1.8369 and 7 * 2.7181, then 91 * 3.1 and 7 * 4.7.
        ((31, 0, 0), "EUR", (1033966, 175572, 1209538, 1209538)),
        ((60, 1, 0), "EUR", (2603119, 303590, 2906709, 2906709)),
        ((0, 0, 0), "GBP", (145281, 67798, 213079, 248604)),
    ],
)
def test_costs_are_those_of_the_catalogue(
    tokens: tuple[int, int, int], currency: str, expected: tuple[int, ...]
) -> None:
    read, short, long = tokens
    record = WRITTEN._replace(cache_read=read, write_5m=short, write_1h=long, currency=currency)
    costs = costs_of(CATALOGUE, record)
    assert costs is not None
    assert costs[2:] == expected


@pytest.mark.parametrize(
    ("price", "currency", "expected"),
    [
        ("EUR", "EUR", (10**12, 10**12)),
        ("EUR", "USD", (1_083_700_000_000, 10**12)),
        ("USD", "USD", (10**12, 922_764_602_750)),  # rounded from …749,8
        ("USD", "EUR", (922_764_602_750, 922_764_602_750)),
    ],
)
def test_rates_are_rounded_to_twelve_digits(price: str, currency: str, expected: tuple[int, int]) -> None:
    content = json.loads(json.dumps(CATALOGUE).replace('"USD", "prompt', f'"{price}", "prompt'))
    costs = costs_of(content, WRITTEN._replace(price_currency=price, currency=currency))
    assert costs is not None
    assert costs[:2] == expected


def test_a_route_that_the_catalogue_does_not_have_has_no_costs() -> None:
    assert costs_of(CATALOGUE, WRITTEN._replace(region="USQAS")) is None
    assert costs_of(CATALOGUE, WRITTEN._replace(price_currency="EUR")) is None


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 30, "completion_tokens": 20}, (30, 0, 0, 0, 20)),
        (
            {
                "prompt_tokens": 60,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 7},
            },
            (33, 20, 7, 0, 20),
        ),
        ({"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, (3, 0, 0, 0, 2)),
        (
            {
                "input_tokens": 30,
                "output_tokens": 20,
                "cache_read_input_tokens": 5,
                "cache_creation_input_tokens": 30,
                "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10},
            },
            (30, 5, 20, 10, 20),
        ),
        ({"x_marker": 1}, None),
    ],
)
def test_tokens_are_those_that_were_reported(usage: Json, expected: tuple[int, ...] | None) -> None:
    assert reported_buckets(usage) == expected


def test_messages_have_the_words_that_they_are_said_to_have() -> None:
    texts = [message["content"] for message in marked(5, 9)]
    assert sum(len(text.split()) for text in texts) == 9
    assert "<marker>5</marker>" in texts[0]
