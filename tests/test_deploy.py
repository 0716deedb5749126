"""What is in deploy/ and beside it for operators: nginx is run, the rest is held to what the repository has."""

import json
import re
from pathlib import Path

import requests
from compose_spec import PyCompose
from ruamel.yaml import YAML

from tests.chat import question
from tests.servers.customer import Customer
from tests.servers.nginx import Nginx
from tests.servers.process import ROOT
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


def test_the_image_has_every_app_and_runs_as_nobody_in_particular() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) \1$", dockerfile, re.MULTILINE))
    assert {*PACKAGES, "docs", "static", "templates"} == copied
    assert re.search(r"^USER \d+$", dockerfile, re.MULTILINE)
    assert "--require-hashes" in dockerfile


def test_compose_is_valid_and_names_what_is_there() -> None:
    compose = YAML(typ="safe").load((ROOT / "compose.yaml").read_text())
    PyCompose.from_json(json.dumps(compose))  # raises where the Compose specification knows no such key or value
    services = compose["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= services.keys(), name
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in compose["volumes"], volume
    for name in ("gateway", "migrate", "maintain"):
        assert services[name]["read_only"] is True


def test_units_run_what_is_there() -> None:
    for unit in (ROOT / "deploy" / "systemd").iterdir():
        for command in re.findall(r"manage\.py (\w+)", unit.read_text()):
            assert command == "migrate" or list(ROOT.glob(f"*/management/commands/{command}.py")), command
