"""A worker whose clients have a second for a head, so that tests of that bound need not wait for ten."""

from importlib import import_module

from gateway.server.worker import GatewayWorker

SECONDS = 1.0
READERS = ("gateway.server.worker", "gateway.fastpath.http_server")  # the master does not load the second


class ImpatientWorker(GatewayWorker):
    """The gateway's worker in all else, for gunicorn's `--worker-class`."""

    def run(self) -> None:
        for name in READERS:
            vars(import_module(name))["HEAD_SECONDS"] = SECONDS
        super().run()
