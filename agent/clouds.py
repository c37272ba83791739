"""Configurations of Ray clusters on AWS, Azure and Kubernetes: pinned versions, idle shutdown, no secret inside.

Evaluators go to GPU nodes, which come when a run asks for them and go when they are idle; the head node stays until the
cluster is stopped. Data only; nothing is started here.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from typing import Any

from tilecast.sandbox.installed import versions_of

KINDS = ("aws", "azure", "kubernetes")
INSTANCES = {"aws": "g6e.2xlarge", "azure": "Standard_NC40ads_H100_v5"}
"""GPU instance taken where none is named: each has one GPU."""
REGIONS = {"aws": "us-west-2", "azure": "westus3"}
DISK_GB = 200
JOIN_S = 1800
"""Seconds that a run waits for its first GPU node: a machine, an image and packages of some gigabytes."""
ENVIRONMENT = "RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0"
"""Of each node's Ray: no reports home, and evaluators that do not give way to everything else on the machine."""


@dataclass(frozen=True)
class ClusterOrder:
    """What is asked for.

    Attributes:
        kind: one of :data:`KINDS`.
        name: of the cluster.
        instance: machine type of GPU nodes; empty takes the kind's own.
        gpus: GPUs of one such machine.
        max_nodes: most GPU nodes at once.
        spot: take machines that may be taken away at any time, for less.
        idle_minutes: a GPU node without work for so long is given back.
        region: of the cloud.
        image: container image; empty takes Ray's own of the same version.
        package: what pip installs as tilecast; empty if the image has it.
        selector: labels of Kubernetes nodes that GPU pods go to.
    """

    kind: str
    name: str = "tilecast"
    instance: str = ""
    gpus: int = 1
    max_nodes: int = 4
    spot: bool = True
    idle_minutes: int = 10
    region: str = ""
    image: str = ""
    package: str = ""
    selector: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pins:
    """Versions of this machine, which every node gets: measurements of other ones are not comparable."""

    ray: str
    python: str
    packages: list[str]


def pins(ray: str, package: str) -> Pins:
    """From what is installed here; ``package`` is installed as tilecast."""
    here = versions_of(("torch", "triton", "numpy"))
    found = [f"{name}=={number.partition('+')[0]}" for name, number in here.items()]
    wanted = [*found, f"ray[default]=={ray}", *([package] if package else [])]
    return Pins(ray, f"{sys.version_info.major}{sys.version_info.minor}", wanted)


def image_of(order: ClusterOrder, pinned: Pins) -> str:
    """As asked, else Ray's image of the same Ray and Python, with CUDA."""
    return order.image or f"rayproject/ray:{pinned.ray}-py{pinned.python}-gpu"


def configuration(order: ClusterOrder, pinned: Pins) -> dict[str, Any]:
    """The cluster as Ray's autoscaler (or KubeRay) reads it."""
    if order.kind == "kubernetes":
        return _kubernetes(order, pinned)
    node = _aws_nodes(order) if order.kind == "aws" else _azure_nodes(order)
    provider: dict[str, Any] = {"type": order.kind}
    region = order.region or REGIONS[order.kind]
    if order.kind == "aws":
        provider |= {"region": region, "cache_stopped_nodes": False}
    else:
        provider |= {"location": region, "resource_group": order.name}
    install = f"pip install --no-cache-dir {' '.join(_quoted(p) for p in pinned.packages)}"
    return {
        "cluster_name": order.name,
        "max_workers": order.max_nodes,
        "idle_timeout_minutes": order.idle_minutes,
        "provider": provider,
        "auth": {"ssh_user": "ubuntu"},
        "docker": {
            "image": image_of(order, pinned),
            "container_name": "tilecast",
            # Candidates run in namespaces of their own, which Docker's standard profile forbids to make.
            "run_options": ["--shm-size=8g", "--security-opt=seccomp=unconfined"],
        },
        "available_node_types": {
            "head": {"min_workers": 0, "max_workers": 0, "resources": {"CPU": 0}, "node_config": node["head"]},
            "gpu": {
                "min_workers": 0,
                "max_workers": order.max_nodes,
                "resources": {"CPU": 4 * order.gpus, "GPU": order.gpus},
                "node_config": node["gpu"],
            },
        },
        "head_node_type": "head",
        "setup_commands": [install],
        "head_start_ray_commands": [
            "ray stop",
            f"{ENVIRONMENT} ray start --head --port=6379 --num-cpus=0 "
            "--autoscaling-config=~/ray_bootstrap_config.yaml --dashboard-host=127.0.0.1",
        ],
        "worker_start_ray_commands": ["ray stop", f"{ENVIRONMENT} ray start --address=$RAY_HEAD_IP:6379"],
    }


def _aws_nodes(order: ClusterOrder) -> dict[str, Any]:
    def node(instance: str) -> dict[str, Any]:
        disk = [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": DISK_GB, "VolumeType": "gp3"}}]
        # Ray puts its own choice of Amazon's deep-learning image (driver, Docker) for the region here.
        return {"InstanceType": instance, "ImageId": "latest_dlami", "BlockDeviceMappings": disk}

    gpu = node(order.instance or INSTANCES["aws"])
    if order.spot:
        gpu["InstanceMarketOptions"] = {"MarketType": "spot"}
    return {"head": node("m7i.large"), "gpu": gpu}


def _azure_nodes(order: ClusterOrder) -> dict[str, Any]:
    image = {
        "imagePublisher": "microsoft-dsvm",
        "imageOffer": "ubuntu-2204",
        "imageSku": "2204-gen2",
        "imageVersion": "latest",
    }
    gpu: dict[str, Any] = {"vmSize": order.instance or INSTANCES["azure"], **image}
    if order.spot:
        gpu |= {"priority": "Spot", "billingProfile": {"maxPrice": -1}}
    return {
        "head": {"azure_arm_parameters": {"vmSize": "Standard_D2s_v3", **image}},
        "gpu": {"azure_arm_parameters": gpu},
    }


def _kubernetes(order: ClusterOrder, pinned: Pins) -> dict[str, Any]:
    labels = {"app": order.name}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": order.name, "namespace": "default", "labels": labels},
        "spec": {
            "rayVersion": pinned.ray,
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {"idleTimeoutSeconds": 60 * order.idle_minutes},
            "headGroupSpec": {
                "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
                "template": {"metadata": {"labels": labels}, "spec": _pod(order, pinned, head=True)},
            },
            "workerGroupSpecs": [
                {
                    "groupName": "gpu",
                    "replicas": 0,
                    "minReplicas": 0,
                    "maxReplicas": order.max_nodes,
                    "rayStartParams": {},
                    "template": {"metadata": {"labels": labels}, "spec": _pod(order, pinned, head=False)},
                }
            ],
        },
    }


def _pod(order: ClusterOrder, pinned: Pins, head: bool) -> dict[str, Any]:
    image, amounts = image_of(order, pinned), {"cpu": "2", "memory": "8Gi"}
    if not head:
        amounts = {"cpu": str(4 * order.gpus), "memory": f"{32 * order.gpus}Gi", "nvidia.com/gpu": str(order.gpus)}
    mounts = [{"name": "packages", "mountPath": "/packages"}]
    container: dict[str, Any] = {
        "name": "ray",
        "image": image,
        "env": [{"name": n, "value": v} for n, _, v in (e.partition("=") for e in ENVIRONMENT.split())],
        "resources": {"limits": amounts, "requests": amounts},
    }
    spec: dict[str, Any] = {"containers": [container]}
    if order.package:
        # Into a folder of the pod before Ray starts: no image has to be built for a first try.
        command = ["pip", "install", "--no-cache-dir", "--target", "/packages", *pinned.packages]
        spec["initContainers"] = [{"name": "install", "image": image, "command": command, "volumeMounts": mounts}]
        spec["volumes"] = [{"name": "packages", "emptyDir": {}}]
        container["volumeMounts"] = mounts
        container["env"] += [{"name": "PYTHONPATH", "value": "/packages"}]
    if not head:
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
        if order.selector:
            spec["nodeSelector"] = dict(order.selector)
        if order.spot:
            spec["tolerations"] += [{"key": key, "operator": "Exists"} for key in order.selector]
            # A pod that is taken away has that long to end; its item is tried elsewhere.
            spec["terminationGracePeriodSeconds"] = 25
    return spec


def run_settings(order: ClusterOrder) -> str:
    """The run's ``tilecast.toml``: GPU nodes come only when ``[ray] workers`` asks for them, and take minutes to come."""
    return f"[ray]\nworkers = {order.gpus * order.max_nodes}\njoin_s = {JOIN_S}\n"


def commands(order: ClusterOrder, file: str, settings: str) -> list[str]:
    """To start the cluster, to run on it, and to stop it.

    Args:
        order: what was asked for.
        file: the cluster's configuration.
        settings: the file with :func:`run_settings`, copied to where the run finds it as ``tilecast.toml``.
    """
    file, settings = shlex.quote(file), shlex.quote(settings)
    run = "tilecast optimize PROBLEM --device ray:auto --max-evals 200"
    if order.kind == "kubernetes":
        head = f"$(kubectl get pod -l ray.io/cluster={order.name},ray.io/node-type=head -o name | cut -d/ -f2)"
        copy = f"kubectl cp {settings} {head}:tilecast.toml && kubectl cp PROBLEM {head}:PROBLEM"
        tilecast = run.replace("tilecast ", "python -m tilecast.agent.cli.app ", 1) if order.package else run
        return [
            f"kubectl apply -f {file}",
            f"{copy} && kubectl exec -it {head} -- {tilecast}",
            f"kubectl delete -f {file}",
        ]
    copy = f"ray rsync-up {file} {settings} '~/tilecast.toml' && ray rsync-up {file} PROBLEM/ '~/PROBLEM/'"
    return [f"ray up -y {file}", f"{copy} && ray exec {file} '{run}'", f"ray down -y {file}"]


def _quoted(text: str) -> str:
    return f"'{text}'"
