"""The operator's commands (docs/contract.md#commands) work; a mistake is one line and changes nothing."""

import json
import re
import uuid
from decimal import Decimal
from pathlib import Path

import pytest

from tests.servers.customer import opened
from tests.servers.gateway import GatewayServer
from tests.servers.manage import Completed, ManageHelper
from tests.servers.process import free_port

TOKEN = re.compile(r"sk-gw-[A-Za-z0-9_-]{43}\n")
COMMANDS = ("create_account", "create_key", "delete_key", "grant_credit", "seed_catalogue", "verify_ledger")
TABLES = ("accounts_account", "accounts_apikey", "accounts_user", "accounts_membership", "billing_ledgerentry")

BAD_NAMES = ["", "   ", "x" * 201, "two\nlines", "tab\tbed", "\x1b[31mred", "zero\u200bwidth", "join\u200ded"]
BAD_AMOUNTS = ["0", "-1", "0.00000000001", "1" + "0" * 9, "1e400", "1e9999999999999999999", "NaN", "Infinity"]
BAD_AMOUNTS += ["ten", "", "1,5", "1_5", "0x10", "\N{ARABIC-INDIC DIGIT FIVE}"]
BAD_CURRENCIES = ["", "eur", "EURO", "EU", "E1R", "EUR\n"]
BAD_LIMITS = ["-1", "1.5", "many", "", "2147483648", "9" * 5000]


@pytest.fixture
def acme(operator: GatewayServer) -> str:
    """Opens an account with 10 EUR and the key `test`, and returns its name."""
    return opened(operator)


@pytest.fixture(scope="module")
def initech(operator: GatewayServer) -> str:
    """Opens an account for commands that are refused and must not change it, and returns its name."""
    return opened(operator)


def refused(operator: GatewayServer, *arguments: str) -> str:
    """Runs a command that must fail and write nothing, and returns its message."""
    before = rows(operator)
    done = operator.manage(*arguments)
    assert rows(operator) == before
    return one_line(done)


def one_line(done: Completed) -> str:
    assert done.code != 0
    assert done.stdout == ""
    assert re.fullmatch(r"CommandError: [^\n]+\n", done.stderr), done.stderr
    return done.stderr.strip()


def rows(operator: GatewayServer) -> list[tuple[object, ...]]:
    """Returns all rows of the tables by one statement, because connecting takes longer than the query."""
    return sorted(operator.query(" UNION ALL ".join(f"SELECT CAST(row AS text) FROM {table} row" for table in TABLES)))


def entries(operator: GatewayServer, name: str) -> list[tuple[object, ...]]:
    return operator.query(
        "SELECT l.kind, l.amount, l.reference FROM billing_ledgerentry l "
        "JOIN accounts_account a ON a.id = l.account_id WHERE a.name = %s ORDER BY l.seq",
        [name],
    )


# create_account


def test_creating_an_account_prints_its_id_alone(operator: GatewayServer) -> None:
    done = operator.manage("create_account", "  Initech  ", "--credit", "12.5", "--owner", "Bill@Initech.example")
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout == f"{uuid.UUID(done.stdout.strip())}\n"
    assert entries(operator, "Initech") == [("grant", 125_000_000_000, "opening")]
    owners = operator.query(
        "SELECT u.email, m.role, u.password FROM accounts_membership m JOIN accounts_user u ON u.id = m.user_id "
        "WHERE m.account_id = %s",
        [uuid.UUID(done.stdout.strip())],
    )
    assert [(email, role) for email, role, _ in owners] == [("bill@initech.example", "owner")]
    assert owners[0][2].startswith("!")


def test_an_account_may_start_with_nothing_in_another_currency(operator: GatewayServer) -> None:
    operator.manage("create_account", "Hooli", "--currency", "USD").ok()
    assert entries(operator, "Hooli") == []
    assert operator.query("SELECT currency FROM accounts_account WHERE name = 'Hooli'") == [("USD",)]


def test_a_currency_without_an_exchange_rate_is_taken_and_said(operator: GatewayServer) -> None:
    done = operator.manage("create_account", "Kabushiki", "--currency", "JPY")
    assert done.ok() == str(uuid.UUID(done.stdout.strip()))
    assert done.stderr == (
        "Warning: There is no exchange rate for JPY: every request of the account is refused until the catalogue has "
        "one.\n"
    )


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_account_has_a_printable_name(operator: GatewayServer, name: str) -> None:
    assert "name: " in refused(operator, "create_account", name)


def test_an_account_is_not_named_like_an_id(operator: GatewayServer) -> None:
    assert "Looks like an account's id" in refused(operator, "create_account", str(uuid.uuid4()))


def test_an_account_has_a_name_of_its_own_without_case(operator: GatewayServer, initech: str) -> None:
    for name in (initech, initech.upper(), initech.replace(" ", "\N{NO-BREAK SPACE}")):
        assert "already exists" in refused(operator, "create_account", name, "--credit", "5")


@pytest.mark.parametrize("currency", BAD_CURRENCIES)
def test_an_account_has_a_currency_code(operator: GatewayServer, currency: str) -> None:
    assert "currency: " in refused(operator, "create_account", "Umbrella", f"--currency={currency}")


@pytest.mark.parametrize("amount", BAD_AMOUNTS)
def test_the_opening_credit_is_an_exact_amount_above_zero(operator: GatewayServer, amount: str) -> None:
    assert "credit" in refused(operator, "create_account", "Umbrella", f"--credit={amount}")


@pytest.mark.parametrize("email", ["", "nobody", "a@b", "x" * 250 + "@example.com"])
def test_an_owner_has_an_email_address(operator: GatewayServer, email: str) -> None:
    assert "owner: " in refused(operator, "create_account", "Umbrella", "--credit", "5", "--owner", email)


def test_the_largest_and_the_smallest_credit_are_kept_exactly(operator: GatewayServer) -> None:
    for number, amount in enumerate(("922337203.6854775807", "0.0000000001")):
        operator.manage("create_account", f"Scale {number}", "--credit", amount).ok()
        assert entries(operator, f"Scale {number}")[0][1] == int(Decimal(amount).scaleb(10))


def test_an_account_may_come_with_a_key_whose_token_is_the_second_line(operator: GatewayServer) -> None:
    account_id, token = operator.manage("create_account", "Pied Piper", "--key", "server").ok().splitlines()
    assert TOKEN.fullmatch(f"{token}\n")
    owner = operator.query(
        "SELECT account_id FROM accounts_apikey WHERE last_four = %s AND name = 'server'", [token[-4:]]
    )
    assert owner == [(uuid.UUID(account_id),)]
    assert "printable characters" in refused(operator, "create_account", "Aviato", "--key", "two\nlines")


def test_what_is_there_already_is_left_as_it_is_if_only_what_is_absent_is_asked_for(operator: GatewayServer) -> None:
    wanted = ("create_account", "Bachmanity", "--credit", "5", "--owner", "erlich@aviato.example", "--key", "server")
    first = json.loads(operator.manage(*wanted, "--if-absent", "--json").ok())
    assert (first["name"], first["currency"], first["created"]) == ("Bachmanity", "EUR", True)
    assert (first["key"]["name"], first["key"]["created"]) == ("server", True)
    before = rows(operator)
    second = json.loads(operator.manage(*wanted, "--if-absent", "--json").ok())
    assert second == {**first, "created": False, "key": {"name": "server", "created": False, "token": None}}
    assert operator.manage(*wanted, "--if-absent").ok() == first["id"]
    assert rows(operator) == before
    later = operator.manage("create_account", "Bachmanity", "--if-absent", "--key", "laptop").ok()
    assert TOKEN.fullmatch(later.splitlines()[1] + "\n")


def test_an_account_that_is_not_what_was_asked_for_is_a_refusal(operator: GatewayServer) -> None:
    operator.manage("create_account", "Endframe", "--credit", "5", "--owner", "owner@endframe.example").ok()
    asked = ("create_account", "Endframe", "--if-absent")
    assert "is kept in EUR, not in USD" in refused(operator, *asked, "--currency", "USD")
    assert "has another opening credit" in refused(operator, *asked, "--credit", "6", "--owner", "new@endframe.example")
    assert "owner: " in refused(operator, *asked, "--owner", "nobody")
    assert "already exists" in refused(operator, "create_account", "Endframe", "--key", "server")


# create_key and delete_key


def test_creating_a_key_prints_its_token_alone(operator: GatewayServer, acme: str) -> None:
    done = operator.manage("create_key", acme, "--name", "laptop", "--expires", "never", "--rpm", "0", "--tpm", "100")
    assert (done.code, done.stderr) == (0, "")
    assert TOKEN.fullmatch(done.stdout)
    stored = operator.query(
        "SELECT expires_at, rpm, tpm FROM accounts_apikey WHERE last_four = %s", [done.stdout[-5:-1]]
    )
    assert stored == [(None, 0, 100)]


def test_an_account_is_named_by_its_id_as_well(operator: GatewayServer) -> None:
    account_id = operator.manage("create_account", "Vandelay").ok()
    assert TOKEN.fullmatch(operator.manage("create_key", account_id, "--name", "first").stdout)
    assert TOKEN.fullmatch(operator.manage("create_key", "Vandelay", "--name", "second").stdout)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_key_has_a_printable_name(operator: GatewayServer, initech: str, name: str) -> None:
    assert "1 to 200 printable characters" in refused(operator, "create_key", initech, "--name", name)


def test_a_key_has_a_name_of_its_own_among_the_live_ones(operator: GatewayServer, acme: str) -> None:
    assert "already has a key named 'test'" in refused(operator, "create_key", acme, "--name", " test ")
    operator.manage("delete_key", acme, "--name", "test").ok()
    assert TOKEN.fullmatch(operator.manage("create_key", acme, "--name", "test").stdout)


@pytest.mark.parametrize("lifetime", ["", "1d", "90", "forever", "-7d", "NEVER"])
def test_a_key_lives_for_one_of_the_offered_times(operator: GatewayServer, initech: str, lifetime: str) -> None:
    assert "--expires" in refused(operator, "create_key", initech, "--name", "new", f"--expires={lifetime}")


@pytest.mark.parametrize("option", ["--rpm", "--tpm"])
@pytest.mark.parametrize("number", BAD_LIMITS)
def test_a_limit_is_a_number_of_zero_or_more(operator: GatewayServer, initech: str, option: str, number: str) -> None:
    assert option in refused(operator, "create_key", initech, "--name", "new", f"{option}={number}")


def test_deleting_a_key_says_which(operator: GatewayServer, acme: str) -> None:
    token = operator.manage("create_key", acme, "--name", "laptop").ok()
    assert operator.manage("delete_key", acme, "--name", "laptop").ok() == f"Deleted laptop (sk-gw-…{token[-4:]})."
    assert "no key named 'laptop'" in refused(operator, "delete_key", acme, "--name", "laptop")


@pytest.mark.parametrize("name", ["", "nobody", "Test", "two\nlines"])
def test_only_a_key_that_is_there_is_deleted(operator: GatewayServer, initech: str, name: str) -> None:
    assert "no key named" in refused(operator, "delete_key", initech, "--name", name)


# grant_credit


def test_granting_prints_only_the_new_balance_and_names_the_account_on_stderr(
    operator: GatewayServer, acme: str
) -> None:
    done = operator.manage("grant_credit", acme, "0.0000000001", "--reference", "invoice 1")
    ((account_id,),) = operator.query("SELECT id FROM accounts_account WHERE name = %s", [acme])
    said = f"This is the balance of {acme} ({uuid.UUID(str(account_id))}) in EUR.\n"
    assert (done.stdout, done.stderr, done.code) == ("10.0000000001\n", said, 0)


def test_a_reason_is_kept_for_staff(operator: GatewayServer, acme: str) -> None:
    operator.manage("grant_credit", acme, "5", "--reference", "invoice 1", "--reason", "Paid in cash.").ok()
    kept = operator.query(
        "SELECT reason FROM billing_ledgerentry WHERE reference = 'invoice 1' ORDER BY id DESC LIMIT 1"
    )
    assert kept == [("Paid in cash.",)]


def test_a_repeated_reference_grants_once_and_says_so(operator: GatewayServer, acme: str) -> None:
    operator.manage("grant_credit", acme, "5", "--reference", "invoice 1").ok()
    again = operator.manage("grant_credit", acme, "5.0", "--reference", "invoice 1")
    assert (again.stdout, again.code) == ("15.00\n", 0)
    assert again.stderr.endswith("Reference 'invoice 1' is already recorded; nothing changed.\n")
    assert len(entries(operator, acme)) == 2


def test_a_reference_with_another_amount_fails(operator: GatewayServer, acme: str) -> None:
    operator.manage("grant_credit", acme, "5", "--reference", "invoice 1").ok()
    result = refused(operator, "grant_credit", acme, "6", "--reference", "invoice 1")
    assert "'invoice 1' is already recorded as a grant of 5.00" in result
    assert "already recorded" in refused(
        operator, "grant_credit", acme, "5", "--reference", "invoice 1", "--correction"
    )


def test_a_correction_may_be_negative_and_below_zero(operator: GatewayServer, acme: str) -> None:
    done = operator.manage("grant_credit", acme, "-10.5", "--reference", "mistake", "--correction")
    assert done.ok() == "-0.50"
    assert entries(operator, acme)[1] == ("correction", -105_000_000_000, "mistake")


@pytest.mark.parametrize("amount", BAD_AMOUNTS)
def test_a_grant_is_an_exact_amount_above_zero(operator: GatewayServer, initech: str, amount: str) -> None:
    refused(operator, "grant_credit", "--reference", "ref", "--", initech, amount)


@pytest.mark.parametrize("reference", ["", "  ", "x" * 201, "two\nlines"])
def test_a_grant_has_a_reference(operator: GatewayServer, initech: str, reference: str) -> None:
    assert "reference" in refused(operator, "grant_credit", initech, "5", "--reference", reference)
    assert "--reference" in refused(operator, "grant_credit", initech, "5")


def test_a_balance_that_would_not_fit_is_refused(operator: GatewayServer, initech: str) -> None:
    refused(operator, "grant_credit", initech, "922337203.6854775807", "--reference", "too much")


# verify_ledger, and all of them


def test_verifying_prints_what_was_checked(operator: GatewayServer, acme: str) -> None:
    done = operator.manage("verify_ledger", "--account", acme)
    assert done == Completed("checked 1 accounts, 1 ledger entries, 0 generations: 0 mismatches\n", "", 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("create_key", "{}", "--name", "new"),
        ("delete_key", "{}", "--name", "test"),
        ("grant_credit", "{}", "5", "--reference", "ref"),
        ("verify_ledger", "--account", "{}"),
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize("account", ["Nobody", "", "00000000-0000-0000-0000-000000000000", "two\nlines"])
def test_an_unknown_account_is_named(operator: GatewayServer, arguments: tuple[str, ...], account: str) -> None:
    result = refused(operator, *(argument.format(account) for argument in arguments))
    assert f"There is no account {account!r}." in result


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_option_is_one_line(operator: GatewayServer, command: str) -> None:
    assert "--help" in refused(operator, command, "--no-such-option")


def test_a_missing_option_is_one_line(operator: GatewayServer, initech: str) -> None:
    expected = "CommandError: the following arguments are required: --name (see --help)"
    assert refused(operator, "create_key", initech) == expected


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(operator: GatewayServer, command: str) -> None:
    done = operator.manage(command, "--help")
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: manage.py {command}")


# The same commands on other databases.


def elsewhere(operator: GatewayServer, folder: Path, url: str, *arguments: str) -> str:
    """Runs a command that must fail on that database, and returns its message."""
    with ManageHelper({**operator.env, "DATABASE_URL": url}, folder / "manage.log") as helper:
        return one_line(helper.run(*arguments))


def test_a_database_without_tables_is_one_line(operator: GatewayServer, tmp_path: Path) -> None:
    said = elsewhere(operator, tmp_path, f"sqlite:///{tmp_path}/empty.sqlite3", "create_account", "Acme")
    assert said == "CommandError: The database is not migrated: run `manage.py migrate` first."


def test_a_server_without_tables_is_one_line(operator: GatewayServer, tmp_path: Path) -> None:
    url = f"{operator.database_url.rpartition('/')[0]}/postgres"
    said = elsewhere(operator, tmp_path, url, "grant_credit", "Acme", "5", "--reference", "ref")
    assert said == "CommandError: The database is not migrated: run `manage.py migrate` first."


@pytest.mark.parametrize("command", [("create_account", "Acme"), ("verify_ledger",)], ids=lambda command: command[0])
def test_a_server_that_is_away_is_one_line_without_the_password(
    operator: GatewayServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    url = f"postgres://somebody:hunter2@127.0.0.1:{free_port()}/gateway"
    said = elsewhere(operator, tmp_path, url, *command)
    assert "Connection refused" in said
    assert "hunter2" not in said


def test_a_folder_that_is_not_there_is_one_line(operator: GatewayServer, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nowhere/gateway.sqlite3"
    assert "unable to open database file" in elsewhere(operator, tmp_path, url, "verify_ledger")


# The same commands in processes of their own.


@pytest.mark.process
def test_a_true_process_prints_and_exits_alike(operator: GatewayServer, acme: str) -> None:
    assert TOKEN.fullmatch(operator.manage_subprocess("create_key", acme, "--name", "own process").stdout)
    assert one_line(operator.manage_subprocess("create_key", "Nobody", "--name", "x")) == (
        "CommandError: There is no account 'Nobody'."
    )


@pytest.mark.process
def test_a_command_line_that_is_not_utf8_is_one_line(operator: GatewayServer) -> None:
    assert "UTF-8" in one_line(operator.manage_subprocess("create_account", "caf\udce9"))
