"""Runs pasted lines in a root shell, in mount, process and network namespaces that leave nothing behind."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from tests.servers.process import ROOT, ServerError

HERE = Path(__file__).parent
# sudo passes on little of the environment, except the variables that precede the command.
SUDO = """#!/bin/sh
test "$1" = -u && user=$2 && shift 2
exec env -i PATH="$PATH" LANG=C.UTF-8 runuser -u "$user" -- env "$@"
"""
END = "the pasted command has ended with status"
MOST_SECONDS = 900.0
# These variables lead to the package index. A fresh machine has nothing else of the tests' environment.
PASSED_ON = ("PIP_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
PREPARE = """
mount -t tmpfs -o mode=755 fresh {folder}
for each in etc opt var; do
    mkdir -p {folder}/$each {folder}/work/$each
    mount -t overlay -o lowerdir=/$each,upperdir={folder}/$each,workdir={folder}/work/$each fresh /$each || exit 1
done
mount -t tmpfs -o mode=755 fresh /run
mkdir -p {folder}/bin
cp {here}/systemctl.py {folder}/bin/systemctl
cp {here}/terminal.py {folder}/bin/on-a-terminal
printf '%s' '{sudo}' >{folder}/bin/sudo
chmod 755 {folder}/bin/*
export HOME=/root LANG=C.UTF-8 PATH={folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""


class Done(NamedTuple):
    """Holds the outcome of a command."""

    status: int
    output: str


class Machine:
    """Runs a root shell with /etc, /opt, /var and /run of its own. Nothing that it starts outlives it."""

    def __init__(self, folder: Path) -> None:
        self._shell = subprocess.Popen(
            ["/usr/bin/unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)},
        )
        folder.mkdir()
        done = self.paste(PREPARE.format(folder=folder, here=HERE, sudo=SUDO))
        if done.status != 0:
            raise ServerError(f"A machine can be made only by root: {done.output}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.communicate()

    def leave_the_network(self) -> None:
        """Moves the shell to a network with only a loopback, on which every port is free."""
        self._write("exec unshare --net bash\n")
        assert self.paste("ip link set lo up").status == 0

    def paste(self, command: str) -> Done:
        """Runs a command in the shell, and returns when it has ended."""
        # The braces prevent a program that reads its input from reading the next command.
        self._write(f"{{ {command}\n}} </dev/null\nprintf '\\n%s %s\\n' '{END}' $?\n")
        timer = threading.Timer(MOST_SECONDS, self._shell.kill)
        timer.start()
        output: list[str] = []
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            if line.startswith(END):
                timer.cancel()
                return Done(int(line.removeprefix(END)), "".join(output))
            output.append(line)
        timer.cancel()
        raise ServerError(f"The shell ended during {command!r}:\n{''.join(output)}")

    def _write(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()


def commands_of(text: str) -> Iterator[str]:
    """Yields the commands in a document's indented blocks, each with its continuation lines and here-documents."""
    command: list[str] = []
    for line in re.findall(r"^    (.*)$", text, re.MULTILINE):
        command.append(line)
        begun = command[0].endswith("<<'END'") and line != "END"
        if not begun and not line.endswith("\\"):
            yield "\n".join(command)
            command = []
    assert not command, f"a command does not end: {command}"


def commit_checkout(repository: Path, *options: str) -> None:
    """Commits the files of this checkout to a bare repository, which is created if needed, so that it can be cloned."""
    git = ["git", f"--git-dir={repository}", f"--work-tree={ROOT}", "-c", "core.bare=false"]
    author = ["-c", "user.name=Test", "-c", "user.email=test@gateway.example"]
    if not repository.exists():
        subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", repository], check=True)
    subprocess.run([*git, "add", "--all"], check=True, cwd=ROOT)
    subprocess.run([*git, *author, "commit", "--quiet", "--message=The checkout", *options], check=True, cwd=ROOT)
