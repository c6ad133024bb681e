"""The manifests for Kubernetes are valid, and match the image and the node."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from fieldbrook import __version__
from fieldbrook.core.settings import load, settings_fields

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docker" / "kubernetes"
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text("utf-8")
VERSIONS = ("1.29", "1.33", "1.37")
"""Of Kubernetes: the oldest one that has ReadWriteOncePod for good, and later ones."""
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))
DOCUMENTS: list[dict[str, Any]] = [
    document
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text("utf-8"))
]


def only(kind: str) -> dict[str, Any]:
    (found,) = (document for document in DOCUMENTS if document["kind"] == kind)
    return found


STATEFUL_SET, JOB = only("StatefulSet"), only("Job")
PODS = [STATEFUL_SET["spec"]["template"], JOB["spec"]["template"]]
NODE = PODS[0]["spec"]["containers"][0]
VARIABLES = {variable["name"]: variable["value"] for variable in NODE["env"]}
PORTS = {port["name"]: port["containerPort"] for port in NODE["ports"]}


def setting(name: str) -> Any:
    return settings_fields()[name].default


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_a_manifest_is_one_that_kubernetes_takes(document: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_manifest_is_told_from_a_right_one() -> None:
    wrong = {**STATEFUL_SET, "spec": {**STATEFUL_SET["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_all_manifests_of_a_node_are_applied_together() -> None:
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {"kustomization.yaml", "upgrade-check.yaml", *KUSTOMIZATION["resources"]}


def test_the_image_is_of_this_version_and_everywhere_the_same() -> None:
    (image,) = KUSTOMIZATION["images"]
    assert image["newTag"] == __version__
    for pod in PODS:
        for container in pod["spec"]["containers"]:
            assert container["image"] == f"{image['name']}:{__version__}"
    text = (FOLDER / "kustomization.yaml").read_text("utf-8")
    assert f"docker build -f docker/Dockerfile -t REGISTRY/fieldbrook:{__version__} ." in text


def test_the_node_is_never_two() -> None:
    assert STATEFUL_SET["spec"]["replicas"] == 1
    (claim,) = STATEFUL_SET["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert only("PodDisruptionBudget")["spec"]["maxUnavailable"] == 0


def test_selectors_choose_the_pods_of_the_node_and_no_others() -> None:
    labels = PODS[0]["metadata"]["labels"]
    selectors = [
        STATEFUL_SET["spec"]["selector"]["matchLabels"],
        only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for each in DOCUMENTS if each["kind"] == "Service"),
    ]
    for selector in selectors:
        assert selector == labels
        assert not selector.items() <= PODS[1]["metadata"]["labels"].items()


def test_every_variable_is_a_setting_with_a_value_that_it_takes() -> None:
    given = {}
    for variable, value in VARIABLES.items():
        name = variable.removeprefix("FIELDBROOK_").lower()
        assert variable == f"FIELDBROOK_{name.upper()}"
        assert name in settings_fields()
        given[name] = value
    assert load(**given).worker_processes == int(VARIABLES["FIELDBROOK_WORKERS"])


def test_variables_of_kubernetes_cannot_be_taken_for_settings() -> None:
    assert [pod["spec"]["enableServiceLinks"] for pod in PODS] == [False, False]


def test_ports_are_those_of_the_node_and_of_the_image() -> None:
    assert {"http": setting("http_port"), "mqtt": setting("mqtt_port")} == PORTS
    exposed = re.search(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE)
    assert exposed is not None
    assert set(PORTS.values()) <= set(map(int, exposed[1].split()))
    services = {each["metadata"]["name"]: each for each in DOCUMENTS if each["kind"] == "Service"}
    for service in services.values():
        ports = {port["targetPort"]: port["port"] for port in service["spec"]["ports"]}
        assert ports == PORTS
    assert services[STATEFUL_SET["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"


def test_probes_ask_the_port_of_http_and_leave_a_start_the_time_of_an_upgrade() -> None:
    probes = {name: probe for name, probe in NODE.items() if name.endswith("Probe")}
    asked = {name: probe["httpGet"] for name, probe in probes.items()}
    assert {probe["port"] for probe in asked.values()} == {"http"}
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startupProbe": "/liveness",
        "livenessProbe": "/liveness",
        "readinessProbe": "/readiness",
    }
    start = probes["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 1800
    # A hung process is replaced by the node itself before Kubernetes restarts all of them.
    alive = probes["livenessProbe"]
    assert alive["periodSeconds"] * alive["failureThreshold"] > 2 * setting("watchdog_s")
    # 16 s, as in the guide.
    assert PODS[0]["spec"]["terminationGracePeriodSeconds"] >= 20


def test_user_and_folders_are_those_of_the_image() -> None:
    user = re.search(r"useradd --system --uid (\d+) --gid (\d+) --home-dir (\S+)", DOCKERFILE)
    assert user is not None
    for pod in PODS:
        context = pod["spec"]["securityContext"]
        assert context["runAsUser"] == int(user[1])
        assert context["runAsGroup"] == context["fsGroup"] == int(user[2])
        for container in pod["spec"]["containers"]:
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert mounts["data"] == user[3]
    assert f"FIELDBROOK_DATA={user[3]}" in DOCKERFILE
    assert f"VOLUME {user[3]}" in DOCKERFILE


def test_no_container_can_gain_rights() -> None:
    for pod in PODS:
        assert pod["spec"]["automountServiceAccountToken"] is False
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["spec"]["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["resources"]["limits"]["memory"]


def test_the_check_of_an_upgrade_looks_at_the_volume_of_the_node() -> None:
    (volume,) = JOB["spec"]["template"]["spec"]["volumes"]
    (claim,) = STATEFUL_SET["spec"]["volumeClaimTemplates"]
    name = STATEFUL_SET["metadata"]["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == f"{claim['metadata']['name']}-{name}-0"
