"""Two gateways are restarted one after the other under load: nginx loses no request and no stream is cut."""

from pathlib import Path

import pytest

from tests.catalogue import catalogue_for, model
from tests.conftest import StartGateway
from tests.crowd import Crowd, compare, crowded
from tests.patience import eventually
from tests.servers.nginx import Nginx
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.campaign
SLUGS = ("echo", "echo", "chunks", "brief")


def test_a_rolling_restart_loses_no_request_and_cuts_no_stream(
    start_gateway: StartGateway, simulator: Simulator, tmp_path: Path
) -> None:
    content = catalogue_for(simulator.url, model("brief", upstream_model="chunks:20:0.05"))
    one = start_gateway(catalogue=content, GATEWAY_DRAIN_TIMEOUT="8")
    other = start_gateway(catalogue=content, GATEWAY_DRAIN_TIMEOUT="8", DATABASE_URL=one.database_url)
    with Nginx([one.port, other.port], tmp_path) as nginx:
        one.origin = nginx.origin
        with crowded(one, SLUGS, clients=8) as crowd:
            goes_on(crowd)
            assert one.stop(timeout=20) == 0
            one.start()
            goes_on(crowd)
            assert other.stop(timeout=20) == 0
            goes_on(crowd)
        assert not crowd.refused, nginx.lost()
    assert all(each.whole for each in crowd.received)
    assert compare(one, crowd, simulator.origin, content)["whole, billed once"] == len(crowd.received)


def goes_on(crowd: Crowd) -> None:
    answers = len(crowd.received)
    assert eventually(lambda: len(crowd.received) > answers + 20)
