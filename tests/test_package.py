"""The wheel that `pip install .` makes is complete and serves from its installation."""

import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from gateway.installation import version
from tests.patience import eventually
from tests.servers.process import ROOT, ServerProcess, free_port
from tests.test_architecture import PACKAGES

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_code_data_templates_static_files_and_documents(wheel: Path) -> None:
    resources = {*_files("docs", "static", "templates"), "tools/verify.py"}
    expected = set(_files(*PACKAGES)) | {f"gateway/{path}" for path in resources}
    assert {path for path in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in path} == expected
    assert wheel.name.startswith(f"inference_gateway-{version()}-")


def _files(*folders: str) -> Iterator[str]:
    for folder in folders:
        found = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        yield from (str(path.relative_to(ROOT)) for path in found)


@pytest.mark.campaign
def test_an_installation_has_its_command_and_serves_from_the_working_directory(wheel: Path, tmp_path: Path) -> None:
    """The wheel is unpacked next to an environment with the packages that it needs, as pip would leave it."""
    site, home, port = tmp_path / "site", tmp_path / "home", free_port()
    zipfile.ZipFile(wheel).extractall(site)
    home.mkdir()
    script = tmp_path / "inference-gateway"
    module, _, function = _project()["scripts"]["inference-gateway"].partition(":")
    script.write_text(f"from {module} import {function}\n{function}()\n")
    command = ["env", "-C", str(home), sys.executable, str(script)]
    own = {"PYTHONPATH": str(site), "SECRET_KEY": "of this test only", "PORT": str(port)}
    inherited = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*command, *arguments], env=inherited | own, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("version") == f"{_project()['version']}\n"
    run("migrate", "--verbosity", "0")
    assert (home / "var" / "gateway.sqlite3").exists()
    server = ServerProcess([*command, "serve"], log=tmp_path / "serve.log", env=inherited | own)
    try:
        assert eventually(lambda: _answers(port))
        for path in (
            "/login",
            "/static/css/gateway.css",
            "/favicon.ico",
            "/docs/api",
            "/v1/openapi.json",
            "/log/verify.py",
        ):
            assert requests.get(f"http://127.0.0.1:{port}{path}", timeout=10).status_code == 200, path
    finally:
        server.stop()


def _project() -> dict[str, dict[str, str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _answers(port: int) -> bool:
    try:
        return requests.get(f"http://127.0.0.1:{port}/livez", timeout=2).ok
    except requests.RequestException:
        return False
