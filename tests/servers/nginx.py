"""Runs nginx with deploy/nginx.conf in front of gateways, from the binary on the machine."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.servers.process import ROOT, ServerProcess, accepts, free_port
from tests.servers.programs import find_program

CONFIGURATION = ROOT / "deploy" / "nginx.conf"


class Nginx:
    """Runs in front of the gateways on these loopback ports, as a context manager."""

    def __init__(self, gateways: Sequence[int], folder: Path) -> None:
        self.port = free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        text = CONFIGURATION.read_text().replace("listen 8080", f"listen 127.0.0.1:{self.port}")
        first, _ = servers = [line for line in text.splitlines() if "server 127.0.0.1:" in line]
        ours = [first.replace("127.0.0.1:8001", f"127.0.0.1:{port}") for port in gateways]
        (folder / "nginx.conf").write_text(text.replace("\n".join(servers), "\n".join(ours)))
        settings = f"pid {folder}/nginx.pid; daemon off; error_log stderr;"
        self._command = [find_program("nginx"), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr", "-g", settings]
        self._log = folder / "nginx.log"

    def __enter__(self) -> Self:
        checked = subprocess.run([*self._command, "-t"], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        self._process = ServerProcess(self._command, log=self._log, env=os.environ)
        self._process.wait_until(lambda: accepts(self.port))
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def lost(self) -> list[str]:
        """Returns the error log's lines on requests that no gateway has answered."""
        lines = self._log.read_text(errors="replace").splitlines()
        return [line for line in lines if " [error] " in line and "connect() failed" not in line]
