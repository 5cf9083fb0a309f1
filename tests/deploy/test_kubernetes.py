"""The manifests against the schemas of Kubernetes, and against what the server and the image say of themselves."""

import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from service.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/kubernetes"
VERSIONS = ("1.32", "1.37")
"""Of Kubernetes: the oldest and the newest that is tried. The sleep before a stop needs 1.30 at least."""

CUSTOM = {"ServiceMonitor", "Kustomization"}
"""Not among the schemas of Kubernetes itself."""


def base():
    """Every object of the base, by its kind."""
    found = {}
    for path in sorted((FOLDER / "base").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            found[document["kind"]] = document
    return found


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def rendered(request):
    """All objects of an overlay, as they would be applied."""
    command = shutil.which("kubectl")
    if command is None:
        pytest.skip("kubectl, which renders overlays, is not installed")
    result = subprocess.run(
        [command, "kustomize", str(FOLDER / "overlays" / request.param)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return request.param, {document["kind"]: document for document in yaml.safe_load_all(result.stdout)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", sorted(base().keys() - CUSTOM))
def test_each_object_of_the_base_is_valid(kind, version):
    kubernetes_validate.validate(base()[kind], version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_of_an_overlay_is_valid(rendered, version):
    _, objects = rendered
    assert len(objects) >= 8
    for kind in objects.keys() - CUSTOM:
        kubernetes_validate.validate(objects[kind], version, strict=True)


def test_the_validator_would_notice():
    document = base()["PodDisruptionBudget"]
    document["spec"]["maxUnavailabel"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSIONS[0], strict=True)


def test_the_kustomization_names_every_file():
    listed = yaml.safe_load((FOLDER / "base/kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in (FOLDER / "base").iterdir()}


def test_pods_have_no_rights_and_nothing_to_write_on():
    pod = base()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_three_probes_ask_the_three_paths():
    (container,) = base()["Deployment"]["spec"]["template"]["spec"]["containers"]
    paths = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
    assert paths == ["/startupz", "/healthz", "/readyz"]


def environment(config_map):
    return {name: str(value) for name, value in config_map.items()}


def test_the_server_takes_the_settings_and_has_time_to_stop(rendered):
    _, objects = rendered
    settings = load_settings(environment(objects["ConfigMap"]["data"]) | {"GOSSAMER_HOST": "0.0.0.0"})
    pod = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert settings.stop_grace_seconds >= settings.request_timeout_seconds
    # What the server allows itself for its last answers is five seconds more.
    assert pod["terminationGracePeriodSeconds"] > pause + settings.stop_grace_seconds + 5
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(settings.keys_file.parent) in mounts


def test_only_the_gpu_overlay_asks_for_one_and_says_so_to_the_server(rendered):
    name, objects = rendered
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    is_gpu = name == "gpu"
    assert ("nvidia.com/gpu" in container["resources"]["limits"]) is is_gpu
    assert (objects["ConfigMap"]["data"].get("GOSSAMER_DEVICE") == "cuda") is is_gpu


def test_memory_is_enough_for_what_the_settings_allow(rendered):
    _, objects = rendered
    settings = load_settings(environment(objects["ConfigMap"]["data"]) | {"GOSSAMER_HOST": "0.0.0.0"})
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    amount, unit = re.fullmatch(r"(\d+)(Mi|Gi)", container["resources"]["limits"]["memory"]).groups()
    limit = int(amount) * {"Mi": 1024**2, "Gi": 1024**3}[unit]
    if settings.device == "cuda":  # the cache is in the GPU's own memory
        assert limit >= 4 * 1024**3
    else:
        assert limit >= settings.kv_cache_bytes + 800 * 1024**2


def test_everything_points_at_the_pods_and_the_metrics_that_there_are(rendered):
    _, objects = rendered
    deployment = objects["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceMonitor"):
        spec = objects[kind]["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        selector = selector.get("matchLabels", selector)
        assert selector.items() <= labels.items(), kind
        assert selector, kind
    assert (
        objects["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"]
        == objects["Deployment"]["metadata"]["name"]
    )
    ports = {port["name"] for port in objects["Service"]["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in objects["ServiceMonitor"]["spec"]["endpoints"]} <= ports


def test_the_autoscaler_s_metric_is_made_by_the_adapter_s_rule_from_one_that_is_documented():
    (metric,) = base()["HorizontalPodAutoscaler"]["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    (rule,) = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text(encoding="utf-8"))["rules"]["custom"]
    assert rule["name"]["as"] == name
    source = re.match(r"\w+", rule["seriesQuery"])[0]
    assert f"`{source}`" in (ROOT / "docs/metrics.md").read_text(encoding="utf-8")


def test_compose_mounts_what_is_there_and_opens_ports_to_this_machine_only():
    file = ROOT / "deploy/compose/compose.yaml"
    services = yaml.safe_load(file.read_text(encoding="utf-8"))["services"]
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (file.parent / source).exists(), source
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    ours = services["gossamer"]
    assert ours["read_only"] is True
    load_settings({**ours["environment"], "GOSSAMER_HOST": "0.0.0.0"})
