"""The job for Kubernetes in docs/extras/ray: its command composes, and all pods have what a run needs of them."""

import shlex

import pytest
import yaml

from ragpipe.cli.command_line import compose_task
from ragpipe.extras.ray.settings import RaySettings
from tests.support.pages import DOCS

JOB = yaml.safe_load((DOCS / "extras" / "ray" / "ray-job.yaml").read_text(encoding="utf-8"))
CLUSTER = JOB["spec"]["rayClusterSpec"]
PODS = [group["template"]["spec"] for group in (CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"])]


@pytest.mark.slow
def test_the_command_is_a_run_that_joins_the_cluster(monkeypatch):
    assert (JOB["apiVersion"], JOB["kind"]) == ("ray.io/v1", "RayJob")
    python, module, name, *words = shlex.split(JOB["spec"]["entrypoint"].replace("$RAY_ADDRESS", "10.0.0.1:6379"))
    assert (python, module, name) == ("python", "-m", "ragpipe")
    monkeypatch.setattr(RaySettings, "missing", lambda _: iter(()))  # Ray itself
    config = compose_task(words)[1]
    assert config.output_dir == "/runs"
    assert (config.runner.kind, config.runner.address, config.runner.slice) == ("ray", "10.0.0.1:6379", 500)


def test_every_pod_has_the_image_of_the_page_the_same_volume_and_no_key_of_a_judge():
    containers = [container for pod in PODS for container in pod["containers"]]
    assert len(containers) == 2
    (image,) = {container["image"] for container in containers}
    assert f":{CLUSTER['rayVersion']}-" in image
    assert "REGISTRY" in image
    assert f"rayproject/ray:{CLUSTER['rayVersion']}-py311" in (DOCS / "extras" / "ray.md").read_text(encoding="utf-8")
    for pod, container in zip(PODS, containers, strict=True):
        (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
        assert mount == {"name": volume["name"], "mountPath": "/runs"}
        assert volume["persistentVolumeClaim"] == {"claimName": "CLAIM"}
        sources = {variable["name"]: variable["valueFrom"]["secretKeyRef"] for variable in container["env"]}
        assert sources == {"PGPASSWORD": {"name": "rag-store", "key": "password", "optional": True}}


def test_connections_need_a_token_and_the_head_measures_nothing():
    assert CLUSTER["authOptions"] == {"mode": "token"}
    assert CLUSTER["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
