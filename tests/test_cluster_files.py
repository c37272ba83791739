"""The cluster configurations: Ray's own loader and schema take them, versions are pinned, nothing secret is inside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tilecast.agent.cli.app import app
from tilecast.agent.clouds import KINDS, ClusterOrder, commands, configuration, pins
from tilecast.agent.config import resolve
from tilecast.sandbox.cluster.schema import loaded, ray_version
from tilecast.sandbox.errors import UsageError

pytest.importorskip("ray")


def config_of(kind: str, **more: Any) -> dict[str, Any]:
    order = ClusterOrder(kind=kind, package="tilecast[ray]==0.1.0", **more)
    return configuration(order, pins(ray_version(), order.package))


@pytest.mark.parametrize("spot", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_rays_own_loader_takes_it_with_idle_shutdown_and_room_to_grow(kind: str, spot: bool) -> None:
    found = loaded(config_of(kind, spot=spot, max_nodes=3, idle_minutes=7, gpus=2))
    assert found["idle_timeout_minutes"] == 7
    gpu = found["available_node_types"]["gpu"]
    assert (gpu["min_workers"], gpu["max_workers"], gpu["resources"]["GPU"]) == (0, 3, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_ray_refuses_it_once_it_is_broken(kind: str) -> None:
    config = config_of(kind)
    if kind == "kubernetes":
        del config["spec"]["workerGroupSpecs"][0]["maxReplicas"]
    else:
        config["idle_timeout_minutes"] = "soon"
    with pytest.raises(UsageError, match="Ray does not accept this cluster configuration"):
        loaded(config)


@pytest.mark.parametrize("kind", KINDS)
def test_the_written_file_is_what_ray_was_shown(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    done = CliRunner().invoke(app, ["cluster", kind, "--output", str(file), "--max-nodes", "2"])
    assert done.exit_code == 0, done.output
    text = file.read_text()
    config = yaml.safe_load(text)
    loaded(config)
    assert "&id" not in text, "no YAML anchors"
    assert f"ray[default]=={ray_version()}" in text and re.search(r"torch==\d", text)
    assert f"rayproject/ray:{ray_version()}-py3" in text
    assert not re.search(r"(?i)secret_|password|api_key|aws_access|BEGIN [A-Z ]*PRIVATE|ssh_private_key", text)
    lines = done.output.splitlines()
    assert "Nothing was started" in lines[0]
    assert [line.split()[0] for line in lines[2:]] == ["start", "run", "stop"]


def test_spot_or_not_is_said_in_each_clouds_own_words() -> None:
    aws = config_of("aws")["available_node_types"]["gpu"]["node_config"]
    azure = config_of("azure")["available_node_types"]["gpu"]["node_config"]["azure_arm_parameters"]
    assert aws["InstanceMarketOptions"] == {"MarketType": "spot"} and azure["priority"] == "Spot"
    assert "Spot" not in str(config_of("azure", spot=False)) and "spot" not in str(config_of("aws", spot=False))


def test_an_image_that_has_everything_needs_no_installation() -> None:
    order = ClusterOrder(kind="kubernetes", image="registry.example/tilecast:1", selector={"pool": "gpu"})
    config = configuration(order, pins(ray_version(), ""))
    pod = config["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    assert "initContainers" not in pod and pod["containers"][0]["image"] == "registry.example/tilecast:1"
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert "-- tilecast optimize" in commands(order, "f.yaml", "f.toml")[1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_finds_settings_that_ask_for_every_gpu(kind: str, tmp_path: Path) -> None:
    file, settings = tmp_path / "a b.yaml", tmp_path / "a b.tilecast.toml"
    done = CliRunner().invoke(app, ["cluster", kind, "--output", str(file), "--max-nodes", "3", "--gpus", "2"])
    assert done.exit_code == 0, done.output
    run = next(line for line in done.output.splitlines() if line.startswith("run "))
    before = run.partition("&&")[0]
    assert f"'{settings}'" in before and re.search(r"[:/]tilecast\.toml", before), (
        "copied to where the run looks for it"
    )
    (tmp_path / "tilecast.toml").write_text(settings.read_text())
    found = resolve(cwd=tmp_path, environ={}).cluster
    assert (found.workers, found.join_s, found.evaluators) == (6, 1800.0, "gpu")


def test_a_file_that_is_there_is_written_over_only_with_force(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    for there in (file, tmp_path / "c.tilecast.toml"):
        there.write_text("mine")
        done = CliRunner().invoke(app, ["cluster", "aws", "--output", str(file)])
        assert isinstance(done.exception, UsageError) and there.read_text() == "mine"
        assert f"{there}: is there already; write over it with --force" in str(done.exception)
        there.unlink()
    file.write_text("mine")
    assert CliRunner().invoke(app, ["cluster", "aws", "--output", str(file), "--force"]).exit_code == 0
    assert "cluster_name" in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gcp"], "cluster 'gcp' is not known; there are aws, azure, kubernetes"),
        (["aws", "--node-selector", "a=b"], "--node-selector is for kubernetes"),
        (["kubernetes", "--node-selector", "ab"], "is not KEY=VALUE"),
        (["kubernetes", "--instance", "p5"], "--instance p5: is for aws and azure"),
        (["kubernetes", "--region", "eu"], "--region eu: is for aws and azure"),
        (
            ["aws", "--package", "none"],
            "--package none: Ray's own image has no tilecast; name one that has it with --image",
        ),
        (["azure", "--package", "none"], "--package none: Ray's own image has no tilecast"),
        (["aws", "--output", "/nowhere/x.yaml"], "--output /nowhere/x.yaml: No such file"),
    ],
)
def test_a_users_mistake_is_named(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["cluster", *arguments])
    assert isinstance(done.exception, UsageError) and words in str(done.exception)


def test_json_is_one_document_that_names_the_files_and_the_commands(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    done = CliRunner().invoke(app, ["cluster", "aws", "--output", str(file), "--json"])
    document = json.loads(done.stdout)
    assert (
        document["schema"] == 1 and Path(document["configuration"]).is_file() and Path(document["settings"]).is_file()
    )
    assert set(document["commands"]) == {"start", "run", "stop"}
