"""Adapts the gateway's worker for measurements."""

import gc
import json
import mmap
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import greenlet

from bench.rig.process import TRACE_FILE, WAITS_FILE
from gateway.server.worker import GatewayWorker

COUNTER_BYTES = 8
_ROOT = f"{Path(__file__).resolve().parents[2]}/"
_NOT_PRODUCT = (f"{_ROOT}.venv/", f"{_ROOT}bench/")


class QuietWorker(GatewayWorker):
    """Runs without its beat, whose work each second does not belong to a request."""

    def run(self) -> Any:
        """Clears the hooks, which apps have registered by now."""
        from gateway.server.hooks import worker_hooks  # noqa: PLC0415  # only now: see gateway.server.worker

        worker_hooks.beat.clear()
        return super().run()


class WaitingWorker(QuietWorker):
    """Counts in a file, without a system call, how often a request waits for a reply of Redis."""

    def run(self) -> Any:
        from gateway.fastpath.redis import PendingReply  # noqa: PLC0415  # only now: see gateway.server.worker

        with Path(os.environ[WAITS_FILE]).open("r+b") as file:
            counter = mmap.mmap(file.fileno(), COUNTER_BYTES)
        wait = PendingReply.wait

        def counted(reply: PendingReply, /) -> bytes | None:
            if not reply._is_here:
                counter[:] = (int.from_bytes(counter[:], "little") + 1).to_bytes(COUNTER_BYTES, "little")
            return wait(reply)

        PendingReply.wait = counted  # type: ignore[assignment, method-assign]
        return super().run()


class TracedWorker(QuietWorker):
    """Writes a line of JSON for each request: the calls of our functions while it was answered.

    The line also has the number of objects that the previous request left to the garbage collector. What other
    greenlets run meanwhile is included: there is one request at a time, and no beat.
    """

    def run(self) -> Any:
        self._calls: dict[str, int] = {}
        return super().run()

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        gc.disable()
        left = gc.collect()
        self._calls.clear()
        greenlet.settrace(lambda _event, _greenlets: sys.setprofile(self._note))
        sys.setprofile(self._note)
        try:
            return super().handle_request(listener_name, req, sock, addr)
        finally:
            greenlet.settrace(None)
            sys.setprofile(None)
            with Path(os.environ[TRACE_FILE]).open("a") as file:
                file.write(json.dumps({"calls": self._calls, "left": left}) + "\n")

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_ROOT) and not code.co_filename.startswith(_NOT_PRODUCT):
            name = f"{code.co_filename.removeprefix(_ROOT)}:{code.co_qualname}"
            self._calls[name] = self._calls.get(name, 0) + 1
