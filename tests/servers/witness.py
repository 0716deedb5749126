"""Runs a witness over HTTP (c2sp.org/tlog-witness), which checks with `tlog_scales` and none of the gateway's code.

It can be told to misbehave. It keeps the tree that it has cosigned in a file, and writes it before it answers.
"""

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tlog_scales.signing import CheckpointSigner, MLDSA44CosignatureSigner, NoteSignature, Vkey
from tlog_scales.tlog import Checkpoint, ConsistencyProof, ConsistencyProofInvalid
from tlog_scales.utils import b64dec, sha256

MOST_HASHES = 63
SILENT_SECONDS = 60.0  # a silent witness goes on when it is closed


class Ed25519CosignatureSigner:
    """Cosigns with Ed25519, which `tlog_scales` can only verify."""

    def __init__(self, name: str, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.vkey = Vkey(name, None, 0x04, self._key.public_key().public_bytes_raw())

    def sign(self, checkpoint: Checkpoint) -> NoteSignature:
        now = int(time.time())
        signed = self._key.sign(f"cosignature/v1\ntime {now}\n{checkpoint.serialize_body()}".encode())
        return NoteSignature.from_vkey_signature(self.vkey, now.to_bytes(8) + signed)


@dataclass(frozen=True, slots=True)
class Answer:
    """Holds what the witness answers."""

    status: int
    body: str = ""
    content_type: str = "text/plain; charset=utf-8"


class Refused(Exception):
    """Carries the answer to a request that the witness does not cosign."""

    def __init__(self, status: int, body: str = "", content_type: str = "text/plain") -> None:
        super().__init__(status)
        self.answer = Answer(status, body, content_type)


class TestWitness:
    """Cosigns the checkpoints of the logs that it is told to trust.

    `misbehave` changes its answers: it gets the right one and returns another. `asked` lists the old size and the size
    of each request; `most_at_once` is how many requests it had at the same time.
    """

    __test__ = False  # it is no test

    def __init__(self, name: str, folder: Path, *, is_ml_dsa: bool = True) -> None:
        seed = sha256(name.encode())
        make: Callable[[str, bytes], CheckpointSigner] = (
            MLDSA44CosignatureSigner if is_ml_dsa else Ed25519CosignatureSigner
        )
        self.signer = make(name, seed)
        self.misbehave: Callable[[Answer], Answer] | None = None
        self.asked: list[tuple[int, int]] = []
        self.notes: list[str] = []
        self.most_at_once = 0
        self.went_on = threading.Event()
        self._at_once = 0
        self._file = folder / f"{name}.json"
        self._trusted: dict[str, list[Vkey]] = {}
        self._lock, self._counting = threading.Lock(), threading.Lock()
        witness = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # http.server calls it by this name
                body = self.rfile.read(int(self.headers["Content-Length"]))
                answer = witness.answer(self.path, body.decode())
                content = answer.body.encode()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.content_type)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Turns off http.server's log."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Ignores clients that do not wait for the answer."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> Self:
        """Serves from now on, in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def close(self) -> None:
        self.went_on.set()
        self._server.shutdown()
        self._server.server_close()

    def trust(self, *vkeys: str) -> None:
        """Trusts these keys of a log, whose name is the log's origin."""
        for vkey in map(Vkey.from_string, vkeys):
            self._trusted.setdefault(vkey.name, []).append(vkey)

    @property
    def vkey(self) -> str:
        return text_of(self.signer.vkey)

    @property
    def line(self) -> str:
        """Returns the line of a policy that defines it."""
        return f"witness {self.signer.vkey.name} {self.vkey} {self.url}"

    def cosigned_size(self, origin: str) -> int:
        """Returns the size of the newest tree that it has cosigned for a log."""
        return int(self._state().get(origin, {"size": 0})["size"])

    def forge(self, origin: str, size: int, root: bytes = bytes(32)) -> None:
        """Makes it remember another tree than it was shown."""
        self._write(origin, size, root)

    def be_silent(self) -> None:
        """Makes it answer nothing until it `speaks` again."""
        self.went_on.clear()

        def wait(answer: Answer) -> Answer:
            self.went_on.wait(SILENT_SECONDS)
            return answer

        self.misbehave = wait

    def speak(self) -> None:
        """Makes it behave again."""
        self.misbehave = None
        self.went_on.set()

    def answer(self, path: str, body: str) -> Answer:
        """Answers a request to `add-checkpoint`."""
        with self._counting:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            found = self._right_answer(path, body)
            return self.misbehave(found) if self.misbehave is not None else found
        finally:
            with self._counting:
                self._at_once -= 1

    def _right_answer(self, path: str, body: str) -> Answer:
        if path != "/add-checkpoint":
            return Answer(404)
        try:
            old, hashes, note = _parts(body)
            checkpoint = Checkpoint.from_text(note)
        except (IndexError, ValueError):
            return Answer(400, "the request cannot be read\n")
        self.asked.append((old, checkpoint.size))
        self.notes.append(note)
        try:
            self._check_signatures(checkpoint)
            with self._lock:
                self._check_tree(old, hashes, checkpoint)
                self._write(checkpoint.origin, checkpoint.size, checkpoint.root_hash)
        except Refused as refused:
            return refused.answer
        return Answer(200, f"{self.signer.sign(checkpoint).serialize()}\n")

    def _check_signatures(self, checkpoint: Checkpoint) -> None:
        trusted = self._trusted.get(checkpoint.origin)
        if trusted is None:
            raise Refused(404)
        own = [(vkey, each) for vkey in trusted for each in checkpoint.signatures if vkey.match(each)]
        if not own:
            raise Refused(403)
        try:
            for vkey, each in own:
                vkey.get_verifier().verify_note(each, checkpoint)
        except (InvalidSignature, ValueError):
            raise Refused(403) from None

    def _check_tree(self, old: int, hashes: list[bytes], checkpoint: Checkpoint) -> None:
        known = self._state().get(checkpoint.origin, {"size": 0, "root": sha256(b"").hex()})
        if old > checkpoint.size:
            raise Refused(400)
        if old != known["size"]:
            raise Refused(409, f"{known['size']}\n", "text/x.tlog.size")
        root = bytes.fromhex(known["root"])
        if old == 0:
            if hashes or (checkpoint.size == 0 and checkpoint.root_hash != sha256(b"")):
                raise Refused(422)
            return
        try:
            ConsistencyProof(old, checkpoint.size, hashes).check(root, checkpoint.root_hash)
        except ConsistencyProofInvalid:
            raise Refused(422) from None

    def _state(self) -> dict[str, dict[str, Any]]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {}

    def _write(self, origin: str, size: int, root: bytes) -> None:
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(self._state() | {origin: {"size": size, "root": root.hex()}}))
        draft.replace(self._file)


def text_of(vkey: Vkey) -> str:
    """Returns a verifier key as text."""
    return str(vkey.serialize())  # type: ignore[no-untyped-call]


def with_unknown_key(answer: Answer) -> Answer:
    """Adds the cosignature of a key that nobody knows, before and after the right one."""
    other = NoteSignature("unknown.example", 1, bytes(72)).serialize()
    return replace(answer, body=f"{other}\n{answer.body}{other}\n") if answer.status == 200 else answer


def with_wrong_signature(answer: Answer) -> Answer:
    """Changes the last byte of the signature."""
    if answer.status != 200:
        return answer
    right = NoteSignature.from_line(answer.body.rstrip("\n"))
    wrong = NoteSignature(right.name, right.key_id, right.payload[:-1] + bytes([right.payload[-1] ^ 1]))
    return replace(answer, body=f"{wrong.serialize()}\n")


def _parts(body: str) -> tuple[int, list[bytes], str]:
    """Returns the old size, the hashes of the proof, and the checkpoint of a request. Raises ValueError."""
    head, separator, note = body.partition("\n\n")
    first, *lines = head.split("\n")
    if not separator or not re.fullmatch(r"old (0|[1-9][0-9]*)", first) or len(lines) > MOST_HASHES:
        raise ValueError
    hashes = [b64dec(line) for line in lines]
    if any(len(each) != 32 for each in hashes) or not note.endswith("\n"):
        raise ValueError
    return int(first.removeprefix("old ")), hashes, note
