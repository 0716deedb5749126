"""The files for operators, in deploy/ and elsewhere, work: nginx is run, the rest is compared with the repository."""

import json
import re
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import requests
from compose_spec import PyCompose
from ruamel.yaml import YAML

from tests.chat import question
from tests.inference.odd_upstream import http
from tests.servers.customer import Customer
from tests.servers.listener import Listener
from tests.servers.nginx import Nginx
from tests.servers.process import ROOT, free_port
from tests.test_architecture import PACKAGES


def test_nginx_passes_a_stream_on_as_it_comes_and_compresses_json(account: Customer, tmp_path: Path) -> None:
    with Nginx([account.gateway.port], tmp_path) as nginx:
        headers = {"Authorization": f"Bearer {account.key}"}
        reply = requests.post(
            f"{nginx.origin}/v1/chat/completions",
            json=question("slow-chunks", stream=True),
            headers=headers,
            stream=True,
            timeout=30,
        )
        first = next(reply.iter_content(None))
        assert first.startswith(b"data: ")
        assert b"[DONE]" not in first, "the proxy has collected the stream"
        assert "Content-Encoding" not in reply.headers
        reply.close()
        models = requests.get(f"{nginx.origin}/v1/models", headers=headers, timeout=30)
        assert models.headers["Content-Encoding"] == "gzip"


def test_nginx_says_in_json_that_no_gateway_answers_and_overwrites_what_clients_say_of_https(tmp_path: Path) -> None:
    seen: list[str] = []

    def listen(talk: socket.socket) -> None:
        seen.append(talk.recv(65536).decode())
        talk.sendall(http("200 OK", b"{}"))

    listener = Listener(listen)
    with closing(listener), Nginx([listener.port], tmp_path) as nginx:
        requests.get(f"{nginx.origin}/login", headers={"X-Forwarded-Proto": "https"}, timeout=30)
        assert "x-forwarded-proto: http\r\n" in seen[0].lower()
    with Nginx([free_port()], tmp_path) as nginx:
        reply = requests.post(f"{nginx.origin}/v1/chat/completions", json={}, timeout=30)
    assert (reply.status_code, reply.headers["Content-Type"]) == (502, "application/json")
    assert reply.json()["error"].keys() == {"message", "type", "code", "param"}
    assert reply.headers["Retry-After"] == "1"


def test_the_image_has_every_app_and_runs_as_any_user() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) \1$", dockerfile, re.MULTILINE))
    assert {*PACKAGES, "docs", "static", "templates"} == copied
    assert re.search(r"^USER \d+$", dockerfile, re.MULTILINE)
    assert "--require-hashes" in dockerfile


def test_compose_is_valid_and_names_what_is_there() -> None:
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / "compose.yaml").read_text())  # as with an empty `.env`
    compose = YAML(typ="safe").load(text)
    # It raises if the Compose specification has no such key or value. Docker takes a tag with a digest; this library
    # takes only one of the two.
    PyCompose.from_json(re.sub(r"@sha256:[0-9a-f]{64}", "", json.dumps(compose)))
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= services.keys(), name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in compose["volumes"], volume
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert {"mem_limit", "pids_limit"} <= service.keys(), name
        assert "build" in service or re.search(r":[^:@]+@sha256:[0-9a-f]{64}$", service["image"]), name
    assert services["nginx"]["depends_on"]["gateway"] == {"condition": "service_healthy", "restart": True}


def test_compose_migrates_by_a_role_of_its_own() -> None:
    services = YAML(typ="safe").load((ROOT / "compose.yaml").read_text())["services"]
    for name in ("gateway", "maintain"):
        environment = services[name]["environment"]
        assert "MIGRATE_DATABASE_URL" not in environment
        assert environment["POSTGRES_PASSWORD"] == "", "`.env` has it"
        assert "//gateway_server:${SERVING_PASSWORD" in environment["DATABASE_URL"]
    owner = services["postgres"]["environment"]["POSTGRES_USER"]
    assert f"//{owner}:${{POSTGRES_PASSWORD" in services["migrate"]["environment"]["MIGRATE_DATABASE_URL"]


def test_compose_s_nginx_leads_to_its_gateway(tmp_path: Path) -> None:
    command = YAML(typ="safe").load((ROOT / "compose.yaml").read_text())["services"]["nginx"]["command"][-1]
    edit = command.partition(" && ")[0].replace("/etc/nginx/template.conf", str(ROOT / "deploy" / "nginx.conf"))
    subprocess.run(edit.replace("/tmp/nginx.conf", str(tmp_path / "nginx.conf")), shell=True, check=True)  # noqa: S602
    text = (tmp_path / "nginx.conf").read_text()
    assert re.findall(r"server (\S+:\d+) ", text) == ["gateway:8000"]


def test_traces_can_be_sent_from_the_image() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "ARG REQUIREMENTS=requirements-traces.txt\n" in dockerfile
    assert "opentelemetry-sdk==" in (ROOT / "requirements-traces.txt").read_text()
