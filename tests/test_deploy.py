"""deploy/: every panel and alert asks for metrics, labels and values that a server has; so does docs/operations.md."""

import json
import re
from collections.abc import Set
from contextlib import closing

import pytest
from ruamel.yaml import YAML

from gateway.errors import OWN_CODES
from gateway.metrics import CHAT, KINDS, OPERATIONS, PHASES, STATUSES
from gateway.request_events import Outcome
from tests.chat import ask
from tests.conftest import StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.process import ROOT, free_port
from tests.servers.redis import PrivateRedis
from tests.servers.scrape import Scrape

pytestmark = pytest.mark.postgres_is_enough  # SQLite does not tell how long a wallet was waited for

METRIC = re.compile(r"\b((?:gateway|gen_ai)_\w+|up)\b(?:\{([^}]*)\})?(?=[\[\s)/]|$)")
GROUPING = re.compile(r"\b(?:by|on) \(([^)]*)\)")
MATCHER = re.compile(r'(\w+)(?:=~?|!=)"([^"]*)"')
LEGEND = re.compile(r"\{\{ *(?:\$labels\.)?(\w+) *\}\}")
OF_PROMETHEUS = {"instance", "job"}  # labels that it adds itself
VALUES: dict[str, Set[str | None]] = {
    "outcome": {outcome.value for outcome in Outcome},
    "status": {*STATUSES},
    "phase": {*PHASES},
    "kind": {*KINDS},
    "code": {*OWN_CODES},
    "state": {"waiting", "claimed", "poison"},
    "job": {"gateway"},
    "gen_ai_operation_name": {CHAT, *OPERATIONS.values()},
}
Labels = dict[str, set[str]]


@pytest.fixture(scope="module")
def exported(start_shared_gateway: StartGateway, redis_server: PrivateRedis) -> Labels:
    """The labels of every metric that a server tells which has served, streamed and refused, by name."""
    server = start_shared_gateway(
        METRICS_BIND=f"127.0.0.1:{free_port()}", WEB_CONCURRENCY="2", CACHE_URL=redis_server.url
    )
    with closing(Customer.open(server)) as customer:
        assert ask(customer, "echo", stream=True).status_code == 200
        assert ask(customer, "no/such/model").status_code == 404
    assert eventually(lambda: Scrape.of(server).total("gateway_requests_total", endpoint="chat/completions") == 2)
    return Scrape.of(server).labels | {"up": set()}


def asked(labels: Labels, expression: str) -> set[str]:
    """The labels that an expression's result may have. Fails where it asks for what is not there."""
    used: set[str] = set()
    for name, matchers in METRIC.findall(GROUPING.sub("", expression)):
        assert name in labels, f"{name}: no such metric"
        own = labels[name] | OF_PROMETHEUS
        used |= own
        for label, value in MATCHER.findall(matchers):
            assert label in own, f"{name} has no label {label}"
            if "$" not in value:
                assert set(value.split("|")) <= VALUES[label], f"{label} is never {value}"
    assert used, f"no metric in {expression}"
    groupings = [{label.strip() for label in names.split(",")} for names in GROUPING.findall(expression)]
    for grouping in groupings:
        assert grouping <= used, f"{grouping - used} in {expression}"
    return set.union(*groupings) if groupings else used


def test_every_panel_shows_what_there_is(exported: Labels) -> None:
    board = json.loads((ROOT / "deploy/grafana/inference-gateway.json").read_text())
    targets = [target for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(targets) > 20
    for target in targets:
        assert set(LEGEND.findall(target["legendFormat"])) <= asked(exported, target["expr"]), target
    for variable in board["templating"]["list"][1:]:
        name, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
        assert label in exported[name] | OF_PROMETHEUS


def test_every_alert_may_fire(exported: Labels) -> None:
    (group,) = YAML(typ="safe").load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) > 10
    for rule in group["rules"]:
        words = rule["annotations"]["summary"]
        assert set(LEGEND.findall(words)) <= asked(exported, rule["expr"]), rule


def test_the_document_lists_every_metric_with_its_labels(exported: Labels) -> None:
    text = (ROOT / "docs/operations.md").read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    listed: Labels = {}
    for names, labels in re.findall(r"^\| (`g\w+`[^|]*) \|([^|]*)\|", text, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            listed[name] = set(re.findall(r"`(\w+)`", labels))
    families = {re.sub(r"(?<!timestamp_seconds)_(bucket|sum|count)$", "", name) for name in exported} - {"up"}
    assert listed == {name: exported.get(name, exported.get(f"{name}_count")) for name in families}
