"""The Kubernetes manifests are valid, and the settings of ranks, agents and collector match each other."""

import io
import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from telemetry.agent.settings import parse_settings
from telemetry.attach.deciding import wants_attachment
from telemetry.settings import DEFAULT_PORT
from telemetry.stores.address import parse_address
from tests.deploy.compose_file import DEPLOY
from tests.docs.pages import DOCS
from tests.each_case import each_case

FILES = sorted((DEPLOY / "kubernetes").glob("*.yml"))
VERSIONS = ("1.29", "1.37")
"""Versions of Kubernetes: the first one with sidecars, and a newer one."""


def manifests(name: str) -> dict[str, dict[str, Any]]:
    """Kind -> manifest."""
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())}


@pytest.fixture
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = manifests("train.yml")["Job"]["spec"]["template"]["spec"]
    return spec


def variables(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}


@each_case("version", VERSIONS)
@each_case("path", FILES)
def test_kubernetes_manifest_is_valid(path: Any, version: str) -> None:
    for manifest in yaml.safe_load_all(io.StringIO(path.read_text())):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_ranks_share_the_spool_with_the_agent_and_start_no_agent(pod: dict[str, Any]) -> None:
    (agent,), (ranks,) = pod["initContainers"], pod["containers"]
    settings = parse_settings("rankscope agent", agent["args"][1:], collector=None)
    told = variables(ranks)
    assert agent["args"][0] == "agent"
    assert told["RANKSCOPE_SPOOL"] == str(settings.spool)
    assert wants_attachment(told)
    assert "RANKSCOPE_COLLECTOR" not in told
    mounts = [{mount["name"]: mount["mountPath"] for mount in each["volumeMounts"]} for each in (agent, ranks)]
    assert mounts[0]["spool"] == mounts[1]["spool"] == str(settings.spool)
    assert "emptyDir" in {volume["name"]: volume for volume in pod["volumes"]}["spool"]


def test_agent_is_a_sidecar_with_the_process_namespace_and_user_of_the_ranks(pod: dict[str, Any]) -> None:
    assert pod["initContainers"][0]["restartPolicy"] == "Always"
    assert pod["shareProcessNamespace"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert not any(
        "runAsUser" in each.get("securityContext", {}) for each in (*pod["initContainers"], *pod["containers"])
    )


def test_agent_address_matches_the_collector_service(pod: dict[str, Any]) -> None:
    collector = manifests("collector.yml")
    service, stateful = collector["Service"], collector["StatefulSet"]
    settings = parse_settings("rankscope agent", pod["initContainers"][0]["args"][1:], collector=None)
    assert settings.collector == f"http://{service['metadata']['name']}:{DEFAULT_PORT}"
    assert service["spec"]["ports"][0]["port"] == DEFAULT_PORT
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    assert variables(container)["RANKSCOPE_ALLOWED_HOSTS"] == service["metadata"]["name"]
    assert stateful["spec"]["replicas"] == 1


def test_collectors_of_a_server_have_the_service_of_a_single_collector_and_are_replaced_one_after_the_other() -> None:
    several, single = manifests("collectors.yml"), manifests("collector.yml")
    assert several["Service"]["metadata"]["name"] == single["Service"]["metadata"]["name"]
    deployment, budget = several["Deployment"]["spec"], several["PodDisruptionBudget"]["spec"]
    assert deployment["replicas"] > budget["minAvailable"] >= 1
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    labels = deployment["template"]["metadata"]["labels"]
    assert labels == deployment["selector"]["matchLabels"] == budget["selector"]["matchLabels"]
    assert several["Service"]["spec"]["selector"] == labels
    (container,) = deployment["template"]["spec"]["containers"]
    address = parse_address(variables(container)["RANKSCOPE_STORE"], {})
    assert (address.user, address.password) == ("rankscope", "")


@each_case(
    ("name", "kind", "alive"),
    [("collector.yml", "StatefulSet", "httpGet"), ("collectors.yml", "Deployment", "tcpSocket")],
)
def test_a_collector_is_restarted_if_it_hangs_but_not_if_its_database_server_does_not_answer(
    name: str, kind: str, alive: str
) -> None:
    """A collector with an embedded store is its own database."""
    (container,) = manifests(name)[kind]["spec"]["template"]["spec"]["containers"]
    assert container["livenessProbe"].keys() & {"httpGet", "tcpSocket"} == {alive}
    assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"


def test_agent_of_a_node_has_the_rights_of_its_systemd_unit_and_sees_all_processes() -> None:
    pod = manifests("agents.yml")["DaemonSet"]["spec"]["template"]["spec"]
    (agent,) = pod["containers"]
    (command,) = re.findall(r"^ *rankscope agent (.*) & wait", agent["args"][0], re.M)
    settings = parse_settings("rankscope agent", command.split(), collector=variables(agent)["RANKSCOPE_COLLECTOR"])
    assert str(settings.spool) == agent["volumeMounts"][0]["mountPath"] == pod["volumes"][0]["hostPath"]["path"]
    assert pod["hostPID"] is True
    unit = (DEPLOY / "systemd/rankscope-agent.service").read_text()
    capabilities = agent["securityContext"]["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    assert f"\nCapabilityBoundingSet={' '.join(f'CAP_{name}' for name in capabilities['add'])}\n" in unit


@each_case("path", FILES)
def test_every_variable_of_a_manifest_is_in_the_settings_or_attach_guide(path: Any) -> None:
    guides = (DOCS / "guides" / "settings.md").read_text() + (DOCS / "guides" / "attach.md").read_text()
    for name in set(re.findall(r"\bRANKSCOPE[A-Z_]*", path.read_text())):
        assert f"`{name}" in guides, name
