#!/usr/bin/python3
"""Replaces `systemctl` if systemd is not the first process: it starts what a unit file describes, and no more.

It follows a unit's user, folder, environment, state directory and commands. It ignores the hardening, which systemd
itself checks in tests/test_units.py. For `enable`, the real systemctl makes the links, which it can do without systemd.
"""

import grp
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDERS = (Path("/etc/systemd/system"), Path("/lib/systemd/system"))
STATE = Path("/run/units")
PLAIN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8"}


class Unit:
    """Holds a service: its file, and its instance, which is the part of its name after the @."""

    def __init__(self, name: str) -> None:
        self.name = name if "." in name else f"{name}.service"
        self.instance = re.search(r"@(.*)\.", self.name)
        file_name = re.sub(r"@.*\.", "@.", self.name)
        files = [folder / file_name for folder in FOLDERS if (folder / file_name).exists()]
        if not files:
            sys.exit(f"Unit {self.name} not found.")
        self.lines = files[0].read_text().splitlines()
        STATE.mkdir(exist_ok=True)
        self.pid_file = STATE / f"{self.name}.pid"

    def all(self, key: str) -> list[str]:
        """Returns each value of the key."""
        found = [line.partition("=")[2].strip() for line in self.lines if line.startswith(f"{key}=")]
        return [value.replace("%i", self.instance[1] if self.instance else "") for value in found]

    def one(self, key: str, default: str = "") -> str:
        return (self.all(key) or [default])[-1]

    def pid(self) -> int:
        """Returns the main process, or 0 if it has ended."""
        file = Path(self.one("PIDFile") or self.pid_file)
        pid = int((file.exists() and file.read_text()) or 0)  # `nginx -t` leaves an empty file
        return pid if pid and Path(f"/proc/{pid}").exists() else 0

    def environment(self) -> dict[str, str]:
        given = dict(each.split("=", 1) for value in self.all("Environment") for each in shlex.split(value))
        for path in self.all("EnvironmentFile"):
            file = Path(path.removeprefix("-"))
            if file.exists() or not path.startswith("-"):
                lines = [line.strip() for line in file.read_text().splitlines()]
                given |= dict(line.split("=", 1) for line in lines if line and line[0] not in "#;")
        return PLAIN | given

    def begin(self, line: str) -> "subprocess.Popen[bytes]":
        """Starts a command as the unit's user, in its folder."""
        user = self.one("User") or "root"
        with Path(f"/var/log/{self.name}.log").open("ab") as log:
            return subprocess.Popen(
                shlex.split(line.removeprefix("-").replace("$MAINPID", str(self.pid()))),
                cwd=self.one("WorkingDirectory", "/"),
                env=self.environment(),
                user=user,
                group=pwd.getpwnam(user).pw_gid,
                extra_groups=[group.gr_gid for group in grp.getgrall() if user in group.gr_mem],
                umask=int(self.one("UMask", "0022"), 8),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def start(self) -> None:
        if self.pid():
            return
        if name := self.one("StateDirectory"):
            folder = Path("/var/lib") / name
            folder.mkdir(exist_ok=True)
            shutil.chown(folder, self.one("User"), self.one("User"))
        self.run("ExecStartPre")
        kind = self.one("Type", "simple")
        if kind != "simple":
            self.run("ExecStart")
        else:
            self.pid_file.write_text(str(self.begin(self.one("ExecStart")).pid))
        self.run("ExecStartPost")

    def stop(self) -> None:
        if pid := self.pid():
            os.kill(pid, signal.SIGTERM)
            while self.pid() and not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z"):
                time.sleep(0.05)
            self.pid_file.unlink(missing_ok=True)

    def reload(self) -> None:
        if not self.pid():
            sys.exit(f"{self.name} is not active, cannot reload.")
        self.run("ExecReload")

    def run(self, key: str) -> None:
        for line in self.all(key):
            if status := self.begin(line).wait():
                log = Path(f"/var/log/{self.name}.log").read_text()[-3000:]
                sys.exit(f"Job for {self.name} failed: {key} ended with status {status}.\n{log}")


def units(names: list[str]) -> list[Unit]:
    """Returns the services; for a timer, the service that it starts."""
    return [Unit(name.replace(".timer", ".service")) for name in names]


def main(arguments: list[str]) -> None:
    """Applies the command to each unit."""
    command, *names = arguments
    if command == "daemon-reload":
        files = sorted(Path("/etc/systemd/system").glob("inference-gateway*"))
        subprocess.run(["systemd-analyze", "verify", *map(str, files)], check=True)
    elif command == "enable":
        now = "--now" in names
        names = [name for name in names if name != "--now"]
        subprocess.run(["/usr/bin/systemctl", "--root=/", "enable", *names], check=True)
        if now:
            for unit in units(names):
                unit.start()
    elif command in ("start", "stop", "reload", "restart"):
        for unit in units(names):
            if command == "restart":
                unit.stop()
                unit.start()
            else:
                getattr(unit, command)()
    else:
        sys.exit(f"This stand-in knows no {command}.")


main(sys.argv[1:])
