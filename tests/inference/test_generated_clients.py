"""Clients generated from `/v1/openapi.json` read whole and streamed answers of a gateway.

Three are made by the OpenAPI Generator: Python, Java (its library `native`) and TypeScript (typescript-fetch). The
fourth is openapi-fetch with the types of openapi-typescript. The programs of tests/generated_clients send the requests
and print what they read. No generated client reads a stream by itself: the programs take the lines, and parse each
event with the generated type.

Java is compiled with the libraries that the generator's own jar contains, and with Debian's jakarta.annotation. Its
default library, okhttp-gson, is not tested: neither PyPI nor Debian has the versions that it needs.
"""

import importlib.metadata
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers.customer import Customer
from tests.servers.node import installed
from tests.servers.process import ROOT
from tests.servers.programs import find_file, find_program

Json = dict[str, Any]

PROGRAMS = ROOT / "tests" / "generated_clients"
JAVA_OPTIONS = {
    "library": "native",
    "containerDefaultToNull": "true",  # or it sends an empty list for each field that was not set
    "openApiNullable": "false",
    "supportUrlQuery": "false",
    "useJakartaEe": "true",
}
# The templates of `native` do not compile if a value is a string or a list, so these two become objects.
JAVA_SCHEMAS = {
    "EmbeddingsRequest_input": "java.lang.Object",
    "EmbeddingList_data_inner_embedding": "java.lang.Object",
}
JAKARTA = "/usr/share/java/jakarta-annotation-api.jar"

EVENTS = {
    "echo": ["message_start", "text_block", "text_delta", "content_block_stop", "message_delta", "message_stop"],
    "reasoning-tools": [
        "message_start",
        *("thinking_block", "thinking_delta", "signature_delta", "content_block_stop"),
        *("tool_use_block", "input_json_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ],
}

pytestmark = pytest.mark.campaign


def run(*command: str | Path, folder: Path, **env: str) -> str:
    """Returns what a program prints. If the program fails, the test shows its last lines."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | env, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def generator() -> Path:
    """Returns the jar of the OpenAPI Generator, which a package of PyPI contains."""
    files = importlib.metadata.files("openapi-generator-cli") or []
    return next(Path(str(file.locate())) for file in files if file.suffix == ".jar")


def generate(language: str, folder: Path, options: Json | None = None, schemas: Json | None = None) -> None:
    """Generates a client in `folder/client` from `folder/openapi.json`."""
    config = {"additionalProperties": options or {}, "schemaMappings": schemas or {}}
    (folder / "config.json").write_text(json.dumps(config))
    command: list[str | Path] = [
        find_program("java"),
        "-XX:TieredStopAtLevel=1",
        "-jar",
        generator(),
        "generate",
        "-i",
        "openapi.json",
        "-g",
        language,
    ]
    run(*command, "-c", "config.json", "-o", "client", folder=folder)


def python(folder: Path, *args: str) -> str:
    generate("python", folder)
    return run(sys.executable, PROGRAMS / "read.py", *args, folder=folder, PYTHONPATH=str(folder / "client"))


def java(folder: Path, *args: str) -> str:
    generate("java", folder, JAVA_OPTIONS, JAVA_SCHEMAS)
    libraries = f"{generator()}:{find_file(JAKARTA)}"
    sources = (folder / "client" / "src" / "main").rglob("*.java")
    run(find_program("javac"), "-cp", libraries, "-d", "classes", *sources, PROGRAMS / "Read.java", folder=folder)
    return run(find_program("java"), "-cp", f"classes:{libraries}", "Read", *args, folder=folder)


def compile_typescript(folder: Path, program: str, *args: str) -> str:
    """Compiles a program with what was generated, strictly, and runs it."""
    for name in ("events.ts", f"{program}.ts"):
        shutil.copy(PROGRAMS / name, folder)
    options = ("--strict", "--target", "es2022", "--module", "nodenext", "--outDir", "compiled")
    run("node_modules/.bin/tsc", *options, f"{program}.ts", folder=folder)
    return run("node", f"compiled/{program}.js", *args, folder=folder)


def typescript_fetch(folder: Path, *args: str) -> str:
    generate("typescript-fetch", folder)
    (folder / "node_modules").symlink_to(installed(PROGRAMS) / "node_modules")
    return compile_typescript(folder, "read-generator", *args)


def openapi_fetch(folder: Path, *args: str) -> str:
    (folder / "node_modules").symlink_to(installed(PROGRAMS) / "node_modules")
    run("node_modules/.bin/openapi-typescript", "openapi.json", "-o", "api.d.ts", folder=folder)
    return compile_typescript(folder, "read-openapi-fetch", *args)


def in_words_of_the_api(names: list[str]) -> list[str]:
    """Writes `MessageStart` as `message_start`, and a name that follows itself once."""
    words = [re.sub(r"\B([A-Z])", r"_\1", name).lower() for name in names]
    return [word for word, _ in itertools.groupby(words)]


REFUSED = [
    ["alias_not_found", "model", "not_found"],
    ["alias_not_found", "model", "not_found_error"],
    ["not_found", "model", "not_found"],
]


@pytest.mark.parametrize("client", [python, java, typescript_fetch, openapi_fetch])
def test_a_generated_client_reads_whole_and_streamed_answers(
    account: Customer, tmp_path: Path, client: Callable[..., str]
) -> None:
    (tmp_path / "openapi.json").write_bytes(account.http.get("/v1/openapi.json").content)
    read = json.loads(client(tmp_path, account.gateway.base_url, account.key))
    assert (read["text"], read["tokens"], read["provider"]) == ("hello there", 2, "simanthropic")
    assert in_words_of_the_api(read["blocks"]) == ["thinking_block", "tool_use_block"]
    assert read["streamed"] == "hello there"
    assert {name: in_words_of_the_api(events) for name, events in read["events"].items()} == EVENTS
    assert read["chat"] == {"text": "hello there", "total": 4, "streamed": "hello there", "usages": [4]}
    assert read["refused"] == REFUSED
