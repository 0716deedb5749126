#!/usr/bin/env python3
"""Runs the cluster of docs/high-availability.md on one machine's loopback, in var/cluster.

    deploy/cluster/cluster.py up          from nothing to two gateways behind nginx, with a simulated provider
    deploy/cluster/cluster.py status      which parts live, and which are primary
    deploy/cluster/cluster.py kill PART   like the death of a machine: SIGKILL to all its processes
    deploy/cluster/cluster.py start PART
    deploy/cluster/cluster.py roll        restarts the gateways one after the other
    deploy/cluster/cluster.py down

PART is a name that `status` prints, or `primary`, `standby`, `redis-primary` for the part in that role now. Needs
Debian's etcd-server, haproxy, nginx-light, pgbouncer, postgresql, redis-sentinel, redis-server; Patroni in var/patroni
(its make target).
"""

import argparse
import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from string import Template

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "var" / "cluster"
PATRONI = ROOT / "var" / "patroni" / "bin" / "patroni"
PYTHON = ROOT / ".venv" / "bin" / "python"
BINARIES = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
FIRST_PORT = int(os.environ.get("CLUSTER_PORT", "16000"))
PORTS = {
    name: FIRST_PORT + number
    for name, number in {
        **{f"etcd{n}": 10 + n for n in (1, 2, 3)},
        **{f"peer{n}": 20 + n for n in (1, 2, 3)},
        **{f"rest{n}": 30 + n for n in (1, 2, 3)},
        **{f"postgres{n}": 40 + n for n in (1, 2, 3)},
        **{f"redis{n}": 60 + n for n in (1, 2)},
        **{f"sentinel{n}": 70 + n for n in (1, 2, 3)},
        **{f"gateway{n}": 80 + n for n in (1, 2)},
        **{"primary": 40, "standbys": 50, "pgbouncer": 51, "redis": 60, "nginx": 80, "simulator": 90},
    }.items()
}
PARTS = (
    *("etcd1", "etcd2", "etcd3", "postgres1", "postgres2", "postgres3", "redis1", "redis2"),
    *("sentinel1", "sentinel2", "sentinel3", "haproxy", "pgbouncer", "simulator", "gateway1", "gateway2", "nginx"),
)
DRAIN_SECONDS = 50.0  # a gateway's, and some


class ClusterError(Exception):
    """A part does not work as it should; its log has the reason."""


# what runs


def start(part: str) -> None:
    """Starts a part with the data of its last run, and returns when it answers."""
    if _pid_of(part) is not None:
        return
    folder = FOLDER / part
    folder.mkdir(exist_ok=True)
    user = _postgres_user() if part.startswith(("postgres", "pgbouncer")) else None
    command, env = _command(part, folder)
    if user is not None:
        shutil.chown(folder, user)
    with (FOLDER / f"{part}.log").open("ab") as log:
        process = subprocess.Popen(  # outlives us
            command,
            cwd=folder if user is not None else ROOT,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    (FOLDER / f"{part}.pid").write_text(str(process.pid))
    _until(lambda: _answers(part), f"{part} answers")


def stop(part: str, number: signal.Signals) -> None:
    """Sends a part the signal (SIGKILL to all its processes), and returns when it has ended."""
    pids = [pid for pid in (_pid_of(part),) if pid is not None]
    if part.startswith("postgres") and number == signal.SIGKILL:
        with suppress(OSError, ValueError):
            pids.append(int((FOLDER / part / "data" / "postmaster.pid").read_text().split()[0]))
    if number == signal.SIGKILL:
        pids += [child for pid in pids for child in _children(pid)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    _until(lambda: not any(map(_lives, pids)), f"{part} ends", within=DRAIN_SECONDS)
    (FOLDER / f"{part}.pid").unlink(missing_ok=True)


def _command(part: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    kind, number = part.rstrip("0123456789"), part.lstrip("abcdefghijklmnopqrstuvwxyz")
    own = {"name": part, "folder": str(folder), "port": str(PORTS.get(part, ""))}
    if kind == "etcd":
        return [_binary("etcd"), "--config-file", _written("etcd.yml", folder, **own, **_etcd(number))], {}
    if kind == "postgres":
        path = _written("patroni.yml", folder, **own, rest=str(PORTS[f"rest{number}"]))
        return [str(PATRONI), path], {}
    if kind == "redis":
        replicaof = "" if number == "1" else f"replicaof 127.0.0.1 {PORTS['redis1']}"
        return [_binary("redis-server"), _written("redis.conf", folder, **own, replicaof=replicaof)], {}
    if kind == "sentinel":
        known = folder / "sentinel.conf"
        path = str(known) if known.exists() else _written("sentinel.conf", folder, **own)
        return [_binary("redis-sentinel"), path], {}
    if kind == "haproxy":
        return [_binary("haproxy"), "-db", "-f", _written("haproxy.cfg", folder, **own)], {}
    if kind == "pgbouncer":
        (folder / "users.txt").write_text(f'"gateway" "{(FOLDER / "password").read_text()}"\n')
        return [_binary("pgbouncer"), _written("pgbouncer.ini", folder, **own)], {}
    if kind == "nginx":
        _write_nginx(folder)
        options = f"pid {folder}/nginx.pid; daemon off;"
        return [_binary("nginx"), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr", "-g", options], {}
    if kind == "simulator":
        return [str(PYTHON), "-m", "simulator", "--port", own["port"]], {}
    return [str(PYTHON), "-m", "gunicorn", "-c", "python:gateway.gunicorn_conf", "gateway.wsgi"], environment(part)


def environment(part: str) -> dict[str, str]:
    """Returns the settings of a gateway and its commands. The second gateway reaches its database through PgBouncer."""
    folder, pooled = FOLDER / part, part == "gateway2"
    own = {"database": str(PORTS["pgbouncer" if pooled else "primary"]), "pooled": str(pooled).lower()}
    path = _written("gateway.env", folder, name=part, folder=str(folder), port=str(PORTS[part]), **own)
    lines = (line.partition("=") for line in Path(path).read_text().splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in lines}


def _etcd(number: str) -> dict[str, str]:
    return {"client": str(PORTS[f"etcd{number}"]), "peer": str(PORTS[f"peer{number}"])}


def _written(template: str, into: Path, **own: str) -> str:
    """Fills in a template of this folder, and returns the path of the result."""
    common = {name: str(port) for name, port in PORTS.items()}
    common |= {
        "etcd_peers": ",".join(f"etcd{n}=http://127.0.0.1:{PORTS[f'peer{n}']}" for n in (1, 2, 3)),
        "etcd_clients": ", ".join(f'"127.0.0.1:{PORTS[f"etcd{n}"]}"' for n in (1, 2, 3)),
        "postgres_binaries": str(_postgres_binaries()),
        "password": (FOLDER / "password").read_text(),
        "secret_key": (FOLDER / "secret_key").read_text(),
    }
    path = into / template
    path.write_text(Template((HERE / template).read_text()).substitute(common | own))
    return str(path)


def _write_nginx(folder: Path) -> None:
    """Writes deploy/nginx.conf with the ports of these gateways."""
    text = (ROOT / "deploy" / "nginx.conf").read_text().replace("listen 8080", f"listen 127.0.0.1:{PORTS['nginx']}")
    for number in (1, 2):
        text = text.replace(f"127.0.0.1:800{number}", f"127.0.0.1:{PORTS[f'gateway{number}']}")
    (folder / "nginx.conf").write_text(text)


# what is asked


def _answers(part: str) -> bool:
    port = PORTS.get(part)
    kind = part.rstrip("0123456789")
    if kind == "etcd":
        return _status(f"http://127.0.0.1:{port}/version") == 200
    if kind == "postgres":
        return _status(f"http://127.0.0.1:{PORTS[f'rest{part[-1]}']}/liveness") == 200
    if kind in ("redis", "sentinel"):
        return _redis(part, "PING") == "PONG"
    if kind in ("haproxy", "pgbouncer"):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port or PORTS["primary"])) == 0
    if kind == "simulator":
        return _status(f"http://127.0.0.1:{port}/v1/models") is not None
    return _status(f"http://127.0.0.1:{port}/livez") == 200


def _status(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def _redis(part: str, *words: str) -> str:
    done = subprocess.run(
        [_binary("redis-cli"), "-p", str(PORTS[part]), *words], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def roles() -> dict[str, str]:
    """Returns the part in each role now: `primary`, `redis-primary`, and `standby`, the synchronous one."""
    found = {}
    for n in (1, 2, 3):
        for role, path in (("primary", "primary"), ("standby", "synchronous")):
            if _status(f"http://127.0.0.1:{PORTS[f'rest{n}']}/{path}") == 200:
                found[role] = f"postgres{n}"
    for n in (1, 2):
        if "role:master" in _redis(f"redis{n}", "INFO", "replication"):
            found["redis-primary"] = f"redis{n}"
    return found


def _until(condition: Callable[[], bool], what: str, within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            raise ClusterError(f"Not within {within:.0f} s: {what}. The logs are in {FOLDER}.")
        time.sleep(0.1)


def _pid_of(part: str) -> int | None:
    try:
        pid = int((FOLDER / f"{part}.pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if _lives(pid) else None


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from _children(int(child))


def _binary(name: str) -> str:
    path = shutil.which(name, path=BINARIES)
    if path is None:
        raise ClusterError(f"{name} is not on this machine; see --help for Debian's packages.")
    return path


def _postgres_binaries() -> Path:
    return max(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3])).parent


def _postgres_user() -> str | None:
    """Returns the user for PostgreSQL, which refuses root."""
    if os.geteuid() != 0:
        return None
    return "postgres" if "postgres" in {entry.pw_name for entry in pwd.getpwall()} else "nobody"


# the commands


def up() -> None:
    """Creates and starts everything."""
    if (FOLDER / "password").exists():
        raise ClusterError(f"{FOLDER} has a cluster already: `down` first.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("password", "secret_key"):
        path = FOLDER / name
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(48))
    # etcd answers only once two of three nodes run, so they start together.
    _together(*(part for part in PARTS if part.startswith("etcd")))
    _together(*(part for part in PARTS if part.startswith(("postgres", "redis", "sentinel", "haproxy", "simulator"))))
    _until(lambda: roles().keys() >= {"primary", "standby"}, "a primary and a synchronous standby", within=120)
    password = (FOLDER / "password").read_text()
    for statement in (
        f"CREATE ROLE gateway LOGIN PASSWORD '{password}'",
        "ALTER ROLE gateway SET statement_timeout = '30s'",
        "CREATE DATABASE gateway OWNER gateway TEMPLATE template0 ENCODING 'UTF8'",
    ):
        _psql(statement, password)
    manage("migrate", "--verbosity", "0")
    _together("pgbouncer", "gateway1", "gateway2")
    start("nginx")
    print(f"http://127.0.0.1:{PORTS['nginx']}, {json.dumps(roles())}")


def _together(*parts: str) -> None:
    """Starts parts that need each other to answer."""
    starting = [subprocess.Popen([sys.executable, __file__, "start", part]) for part in parts]
    if sum(process.wait() for process in starting):
        raise ClusterError(f"Some of {', '.join(parts)} did not start. The logs are in {FOLDER}.")


def _psql(statement: str, password: str) -> None:
    command = [str(_postgres_binaries() / "psql"), "-h", "127.0.0.1", "-p", str(PORTS["primary"]), "-U", "postgres"]
    done = subprocess.run(
        [*command, "-q", "-f", "-"],
        input=statement,
        text=True,
        env={**os.environ, "PGPASSWORD": password},
        check=False,
    )
    if done.returncode:
        raise ClusterError("PostgreSQL refused a statement.")


def manage(*arguments: str) -> None:
    """Runs `manage.py` with the settings of the first gateway."""
    (FOLDER / "gateway1").mkdir(exist_ok=True)
    env: Mapping[str, str] = {**os.environ, **environment("gateway1")}
    if subprocess.run([str(PYTHON), "manage.py", *arguments], cwd=ROOT, env=env, check=False).returncode:
        raise ClusterError(f"manage.py {arguments[0]} failed.")


def down() -> None:
    """Ends everything, and deletes the data but not the logs."""
    for part in reversed(PARTS):
        stop(part, signal.SIGKILL)
        shutil.rmtree(FOLDER / part, ignore_errors=True)
    for name in ("password", "secret_key"):
        (FOLDER / name).unlink(missing_ok=True)


def roll() -> None:
    """Restarts both gateways, one after the other: each drains, ends, starts and serves before the next one stops."""
    for part in ("gateway1", "gateway2"):
        stop(part, signal.SIGTERM)
        start(part)
        _until(lambda port=PORTS[part]: _status(f"http://127.0.0.1:{port}/readyz") == 200, f"{part} is ready")  # type: ignore[misc]


def reload() -> None:
    """Makes nginx read its configuration again; open requests continue in its old workers."""
    pid = _pid_of("nginx")
    if pid is None:
        raise ClusterError("nginx does not run.")
    os.kill(pid, signal.SIGHUP)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("up", "down", "status", "kill", "start", "roll", "reload", "manage"))
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    part = chosen.arguments[0] if chosen.arguments else ""
    try:
        if chosen.command == "status":
            print(json.dumps({**roles(), **{each: _pid_of(each) is not None for each in PARTS}}, indent=1))
        elif chosen.command == "manage":
            manage(*chosen.arguments)
        elif chosen.command == "reload":
            reload()
        elif chosen.command == "kill":
            part = roles().get(part, part)
            stop(part, signal.SIGKILL)
            print(part)
        elif chosen.command == "start":
            start(part)
        else:
            {"up": up, "down": down, "roll": roll}[chosen.command]()
    except ClusterError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
