"""Each line of docs/deployment.md is pasted on a fresh machine: one machine, a backup and an upgrade.

The lines run unchanged, as root, and the installation fetches its packages. systemd is not the first process here, so
`systemctl` is tests/fresh_machine/systemctl.py, and `sudo -u` is runuser. Debian's packages are those of this machine.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fresh_machine.machine import Machine, commands_of, commit_checkout
from tests.patience import eventually
from tests.servers.postgres import postgres_binaries
from tests.servers.process import ROOT
from tests.servers.programs import find_program

DEPLOYMENT = (ROOT / "docs" / "deployment.md").read_text()
SECRET = "s3cret-of-the-machine"
PROGRAMS = ("nginx", "redis-server", "systemd-analyze", "curl")
POSTGRES = """
mkdir -p /run/postgresql /var/lib/fresh && chown postgres /run/postgresql /var/lib/fresh &&
cd /var/lib/fresh &&
runuser -u postgres -- {initdb} -D /var/lib/fresh/data --auth-local=peer --auth-host=scram-sha-256 --no-sync &&
runuser -u postgres -- {pg_ctl} -D /var/lib/fresh/data -l /var/lib/fresh/log -w start &&
(redis-server --port 6379 >/var/log/redis.log 2>&1 &) &&
systemctl start nginx &&
cd /root
"""
CERTIFICATE = """
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=gateway.example -addext subjectAltName=DNS:gateway.example \
    -keyout /etc/ssl/gateway.example.key -out /etc/ssl/gateway.example.pem
echo 127.0.0.1 gateway.example >>/etc/hosts
"""
SIMULATOR = "(cd /opt/inference-gateway && .venv/bin/python -m simulator --port 9999 >/var/log/simulator.log 2>&1 &)"
CURL = "curl --silent --show-error --cacert /etc/ssl/gateway.example.pem https://gateway.example"


PASTED = ("One machine", "Backup and restore", "Upgrade", "Is it well?")
NOT_PASTED = {
    "What a gateway needs": "its lines are a file of settings, which the lines of one machine install",
    "Containers": "no engine of containers is here; tests/test_deploy.py reads the files",
    "Kubernetes": "no cluster is here; tests/test_chart.py renders the chart",
}
# Without a network neither answers. `doctor` reports it and ends with status 1.
AWAY = {"mail", "provider scaleway"}


def section(heading: str) -> str:
    return re.split(rf"^## {heading}$", DEPLOYMENT, flags=re.MULTILINE)[1].partition("\n## ")[0]


def settings_of_the_document() -> str:
    lines = re.findall(r"^    (.*)$", section("What a gateway needs"), re.MULTILINE)
    return "\n".join(lines).replace("…", SECRET)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    for program in PROGRAMS:
        find_program(program)
    with Machine(tmp_path / "machine") as fresh:
        yield fresh


def paste(machine: Machine, command: str) -> str:
    done = machine.paste(command)
    assert done.status == 0, f"{command}\n{done.output}"
    return done.output


def follow(machine: Machine, text: str, repository: Path) -> list[str]:
    """Pastes each command of the text, all of which must succeed, and returns what they print."""
    return [follow_line(machine, command, repository) for command in commands_of(text)]


def follow_line(machine: Machine, command: str, repository: Path) -> str:
    command = command.replace("git clone …", f"git clone {repository}").replace("…", SECRET)
    if "createsuperuser" in command:  # asks for a password on a terminal
        command = f"on-a-terminal {SECRET} {command}"
    if not command.endswith(" doctor"):
        return paste(machine, command)
    output = machine.paste(command).output
    assert set(re.findall(r"^WRONG ([^:]*):", output, re.MULTILINE)) == AWAY, output
    return output


def test_each_part_of_the_document_is_pasted_or_says_why_not() -> None:
    headings = set(re.findall(r"^## (.*)$", DEPLOYMENT, re.MULTILINE))
    assert headings == {*PASTED, *NOT_PASTED}


@pytest.mark.campaign
@pytest.mark.process
def test_the_lines_of_the_document_make_a_gateway_of_a_fresh_machine(machine: Machine, tmp_path: Path) -> None:
    assert machine.paste("false").status == 1, "what fails would pass"
    repository = tmp_path / "gateway.git"
    commit_checkout(repository)
    fetched, rest = re.split(r"^(?=\*\*The database\*\*)", section("One machine"), flags=re.MULTILINE)
    follow(machine, fetched, repository)

    machine.leave_the_network()
    binaries = postgres_binaries()
    settings = f"cd /opt/inference-gateway && cat >settings.env <<'END'\n{settings_of_the_document()}\nEND"
    postgres = POSTGRES.format(initdb=binaries / "initdb", pg_ctl=binaries / "pg_ctl")
    for command in (postgres, CERTIFICATE, settings):
        paste(machine, command)
    printed = follow(machine, rest, repository)
    (key,) = {found for output in printed for found in re.findall(r"sk-gw-[\w-]+", output)}
    provide(machine)
    assert eventually(lambda: '"finish_reason"' in ask(machine, key)), ask(machine, key)
    assert paste(machine, f"{CURL}/login --fail --output /dev/null --write-out '%{{http_code}}'").strip() == "200"
    for port in (18001, 18002):
        assert "gateway_settlement_duration_seconds" in paste(
            machine, f"curl --silent --fail http://127.0.0.1:{port}/metrics"
        )

    assert "1 generations: 0 mismatches" in follow(machine, section("Backup and restore"), repository)[-1]

    commit_checkout(repository, "--allow-empty")
    printed = follow(machine, section("Upgrade"), repository)
    assert "Fast-forward" in printed[0] or "Updating" in printed[0]
    assert '"finish_reason"' in ask(machine, key)
    follow(machine, section("Is it well\\?"), repository)


def provide(machine: Machine) -> None:
    """Adds the provider of the README, with the simulator's address."""
    (catalogue,) = re.findall(r"```yaml\n(providers:.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    catalogue = catalogue.replace("https://api.acme.example/v1", "http://127.0.0.1:9999/v1")
    catalogue = catalogue.replace("upstream_model: llama-3.3-70b ", "upstream_model: echo ")
    seed = "sudo -u inference-gateway ENV_FILE=/etc/inference-gateway.env .venv/bin/python manage.py seed_catalogue"
    reload = next(
        command for command in commands_of(section("One machine")) if command.startswith("systemctl reload i")
    )
    paste(machine, SIMULATOR)
    paste(machine, f"cat >/tmp/my-providers.yaml <<'END'\n{catalogue}\nEND")
    paste(machine, f"{seed} /tmp/my-providers.yaml && rm /tmp/my-providers.yaml")
    paste(machine, f"echo ACME_API_KEY={SECRET} >>/etc/inference-gateway.env")
    paste(machine, reload)


def ask(machine: Machine, key: str) -> str:
    body = '{"model": "acme/meta/llama-3.3-70b-instruct", "messages": [{"role": "user", "content": "Hello!"}]}'
    return machine.paste(f"{CURL}/v1/chat/completions -H 'Authorization: Bearer {key}' -d '{body}'").output
