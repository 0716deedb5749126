"""The Helm chart in deploy/helm is rendered by Helm's library, and each object checked by Kubernetes' schemas."""

import json
import re
import subprocess
import sys
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from gateway.edge.health import LIVE_PATHS, READY_PATH
from gateway.installation import version
from tests.servers.process import ROOT

CHART = ROOT / "deploy" / "helm" / "inference-gateway"
OLDEST, NEWEST = "1.29", "1.37"
# The library runs in a separate process, because it brings Go's runtime and its signal handlers.
RENDER = """
import json, sys, helm_python as helm
asked = json.load(sys.stdin)
try:
    with helm.Chart.load(asked["chart"]) as chart:
        rendered = [chart.render(values, name="gw", namespace="llm") for values in asked["values"]]
except helm.HelmError as error:
    sys.exit(str(error))
json.dump(rendered, sys.stdout)
"""
LEAST: dict[str, Any] = {
    "image": {"repository": "registry.example/inference-gateway"},
    "secrets": ["gateway"],
    "settings": {"PUBLIC_URL": "https://gateway.example", "ALLOWED_HOSTS": "gateway.example"},
}
PEERS = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
ALL = LEAST | {
    "image": {"repository": "registry.example/inference-gateway", "tag": "trial", "pullSecrets": ["registry"]},
    "secrets": ["gateway", "providers"],
    "settings": LEAST["settings"] | {"GATEWAY_TRUSTED_PROXIES": "1"},
    "autoscaling": {"enabled": True},
    "spool": {"storageClassName": "fast"},
    "extraEnv": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "caSecret": "database-ca",
    "migrate": {"catalogue": {"acme.yaml": "providers: []\n"}, "secrets": ["owner"]},
    "metrics": {
        **{"annotations": True, "serviceMonitor": True, "prometheusRule": True},
        "labels": {"release": "prometheus"},
    },
    "networkPolicy": {"clients": PEERS, "metrics": PEERS},
    "ingress": {"enabled": True, "tlsSecret": "certificate"},
    "nodeSelector": {"pool": "gateways"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
    "podAnnotations": {"team": "models"},
}
OPERATORS = "monitoring.coreos.com/v1"
Object = dict[str, Any]


def _render(*values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    asked = json.dumps({"chart": str(CHART), "values": values})
    command = [sys.executable, "-c", RENDER]
    return subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def rendered() -> list[list[Object]]:
    """Returns the objects with the fewest possible values set, and with everything switched on."""
    done = _render(LEAST, ALL)
    assert done.returncode == 0, done.stderr
    yaml = YAML(typ="safe")
    return [
        [one for name, text in files.items() if name.endswith(".yaml") for one in yaml.load_all(text) if one]
        for files in json.loads(done.stdout)
    ]


@pytest.fixture(scope="module")
def least(rendered: list[list[Object]]) -> list[Object]:
    return rendered[0]


@pytest.fixture(scope="module")
def everything(rendered: list[list[Object]]) -> list[Object]:
    return rendered[1]


def _one(objects: list[Object], kind: str) -> Object:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def _pods(objects: list[Object]) -> list[Object]:
    """Returns the pod specs of all objects that make pods."""
    specs = [_one(objects, kind)["spec"] for kind in ("StatefulSet", "Job")]
    specs.append(_one(objects, "CronJob")["spec"]["jobTemplate"]["spec"])
    return [spec["template"]["spec"] for spec in specs]


def test_every_object_is_as_kubernetes_describes_it(rendered: list[list[Object]]) -> None:
    always = {"StatefulSet", "Service", "Job", "CronJob", "PodDisruptionBudget", "NetworkPolicy"}
    assert {one["kind"] for one in rendered[0]} == always
    more = {"HorizontalPodAutoscaler", "Ingress", "ConfigMap", "ServiceMonitor", "PrometheusRule"}
    assert {one["kind"] for one in rendered[1]} == always | more
    for kubernetes, objects in ((OLDEST, rendered[0]), (NEWEST, rendered[1])):
        for one in objects:
            if one["apiVersion"] == OPERATORS:  # defined by an operator, not by Kubernetes
                continue
            kubernetes_validate.validate(one, kubernetes, strict=True)


def test_no_pod_can_do_more_than_it_must(everything: list[Object]) -> None:
    for pod in _pods(everything):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert f"USER {pod['securityContext']['runAsUser']}" in (ROOT / "Dockerfile").read_text()
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            secrets = [*ALL["secrets"], *(ALL["migrate"]["secrets"] if container["name"] == "migrate" else ())]
            assert container["envFrom"] == [{"secretRef": {"name": name}} for name in secrets]
            assert container["image"] == "registry.example/inference-gateway:trial"


def test_probes_drain_and_spool_are_the_product_s(least: list[Object]) -> None:
    stateful = _one(least, "StatefulSet")["spec"]
    pod = stateful["template"]["spec"]
    (gateway,) = pod["containers"]
    assert gateway["image"].endswith(f":{version()}")
    paths = [gateway[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
    assert paths[0] == paths[1]
    assert paths[0].strip("/") in LIVE_PATHS
    assert paths[2] == f"/{READY_PATH}"
    env = {variable["name"]: variable["value"] for variable in gateway["env"]}
    pause = int(gateway["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > int(env["GATEWAY_DRAIN_TIMEOUT"]) + 10 + pause, "gunicorn has 10 more"
    spool = re.search(r"GATEWAY_SPOOL_DIR=(\S+)", (ROOT / "Dockerfile").read_text())
    assert spool is not None
    mounted = {mount["name"]: mount["mountPath"] for mount in gateway["volumeMounts"]}
    assert spool[1].startswith(mounted["spool"])
    assert stateful["volumeClaimTemplates"][0]["metadata"]["name"] == "spool", "a volume that outlives the pod"


def test_migrations_run_before_the_pods_and_every_command_is_there(everything: list[Object]) -> None:
    job = _one(everything, "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    commands = re.findall(
        r'manage\.py["\', ]+(\w+)', json.dumps([everything, (CHART / "templates" / "NOTES.txt").read_text()])
    )
    assert {"migrate", "seed_catalogue", "maintain", "create_account", "create_key", "doctor"} == set(commands)
    for command in set(commands) - {"migrate"}:
        assert list(ROOT.glob(f"*/management/commands/{command}.py")), command


def test_every_pod_has_resources_the_authorities_and_variables_by_reference(
    least: list[Object], everything: list[Object]
) -> None:
    for pod in _pods(least):
        (container,) = pod["containers"]
        assert {"requests", "limits"} == container["resources"].keys(), "a namespace with a quota refuses it otherwise"
        assert {volume["name"] for volume in pod["volumes"]} <= {"tmp", "spool"}
    for pod in _pods(everything):
        (container,) = pod["containers"]
        assert ALL["extraEnv"][0] in container["env"]
        assert {"name": "ca", "secret": {"secretName": "database-ca"}} in pod["volumes"]
        assert {"name": "ca", "mountPath": "/etc/inference-gateway/ca", "readOnly": True} in container["volumeMounts"]


def test_prometheus_operator_learns_what_to_scrape_and_when_to_warn(everything: list[Object]) -> None:
    monitor, rule = _one(everything, "ServiceMonitor"), _one(everything, "PrometheusRule")
    wanted = monitor["spec"]["selector"]["matchLabels"]
    (service,) = (
        one for one in everything if one["kind"] == "Service" and wanted.items() <= one["metadata"]["labels"].items()
    )
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    (endpoint,) = monitor["spec"]["endpoints"]
    (gateway,) = _pods(everything)[0]["containers"]
    assert {"name": ports[endpoint["port"]], "containerPort": 9100} in gateway["ports"]
    alerts = YAML(typ="safe").load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
    assert rule["spec"] == alerts
    assert 'job="gateway"' in json.dumps(alerts).replace("\\", "")
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "gateway"}]
    for each in (monitor, rule):
        assert each["metadata"]["labels"]["release"] == "prometheus"


def test_pods_scale_on_a_metric_that_they_have(everything: list[Object]) -> None:
    scaler = _one(everything, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["kind"] == "StatefulSet"
    assert "replicas" not in _one(everything, "StatefulSet")["spec"]
    name = scaler["metrics"][0]["pods"]["metric"]["name"]
    assert f"`{name}`" in (ROOT / "docs" / "operations.md").read_text()


def test_metrics_are_for_those_who_are_named(least: list[Object], everything: list[Object]) -> None:
    def reached(objects: list[Object]) -> dict[int, Any]:
        rules = _one(objects, "NetworkPolicy")["spec"]["ingress"]
        return {rule["ports"][0]["port"]: rule.get("from") for rule in rules}

    assert reached(least) == {8000: None}
    assert reached(everything) == {8000: PEERS, 9100: PEERS}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (LEAST | {"secrets": []}, "/secrets"),
        (LEAST | {"settings": LEAST["settings"] | {"SECRET_KEY": "in the release's history"}}, "SECRET_KEY"),
        (LEAST | {"replica": 3}, "replica"),
    ],
)
def test_values_that_are_wrong_are_refused(wrong: dict[str, Any], named: str) -> None:
    done = _render(wrong)
    assert done.returncode != 0
    assert named in done.stderr


def test_the_chart_is_of_this_version() -> None:
    chart = YAML(typ="safe").load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version(), version())
