"""``tilecast cluster``: writes the configuration of a Ray cluster, and says how to start, use and stop it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilecast.agent.cli.shared import JsonOption, print_json


def cluster(
    kind: Annotated[str, typer.Argument(help="aws, azure or kubernetes.", show_default=False)],
    output: Annotated[Path | None, typer.Option(help="File to write (default: NAME-KIND.yaml).")] = None,
    name: Annotated[str, typer.Option(help="Name of the cluster.")] = "tilecast",
    instance: Annotated[
        str | None, typer.Option(help="Machine type of GPU nodes (AWS, Azure).", metavar="TYPE")
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, max=16, help="GPUs of one such machine.")] = 1,
    max_nodes: Annotated[int, typer.Option(min=1, max=1000, help="Most GPU nodes at once.")] = 4,
    spot: Annotated[bool, typer.Option("--spot/--on-demand", help="Machines that may be taken away, for less.")] = True,
    idle_minutes: Annotated[int, typer.Option(min=1, help="A GPU node idle for so long is given back.")] = 10,
    region: Annotated[str | None, typer.Option(help="Region (AWS) or location (Azure).")] = None,
    image: Annotated[str | None, typer.Option(help="Container image (default: Ray's, of the version here).")] = None,
    package: Annotated[
        str | None,
        typer.Option(help="What pip installs as tilecast; 'none' if the image has it (default: this version)."),
    ] = None,
    node_selector: Annotated[
        list[str] | None, typer.Option(help="Label of Kubernetes nodes for GPU pods.", metavar="KEY=VALUE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the configuration of a Ray cluster for `--device ray`; nothing is started, and no secret is in it.

    Examples: tilecast cluster aws --instance p5.48xlarge --gpus 8 --max-nodes 2
    | tilecast cluster kubernetes --node-selector cloud.google.com/gke-spot=true
    """
    from tilecast.agent.clouds import KINDS, ClusterOrder, commands, configuration, pins, run_settings
    from tilecast.sandbox.cluster.schema import loaded, ray_version
    from tilecast.sandbox.errors import UsageError

    if kind not in KINDS:
        raise UsageError(f"cluster {kind!r} is not known; there are {', '.join(KINDS)}")
    _check(kind, instance, region, image, package)
    order = ClusterOrder(
        kind=kind,
        name=name,
        instance=instance or "",
        gpus=gpus,
        max_nodes=max_nodes,
        spot=spot,
        idle_minutes=idle_minutes,
        region=region or "",
        image=image or "",
        package=_package(package),
        selector=_labels(node_selector or [], kind),
    )
    config = configuration(order, pins(ray_version(), order.package))
    loaded(config)
    file = output or Path(f"{name}-{kind}.yaml")
    settings = file.with_name(f"{file.stem}.tilecast.toml")
    _refuse_overwriting([file, settings], force)
    _write(file, _text(config, order.kind))
    _write(settings, run_settings(order))
    told = dict(zip(("start", "run", "stop"), commands(order, str(file), str(settings)), strict=True))
    _tell(kind, file, settings, told, as_json)


def _tell(kind: str, file: Path, settings: Path, told: dict[str, str], as_json: bool) -> None:
    """What was written, and the commands that use it."""
    if as_json:
        print_json({"schema": 1, "kind": kind, "configuration": str(file), "settings": str(settings), "commands": told})
        return
    typer.echo(f"written to {file}; Ray's own loader accepts it. Nothing was started.")
    typer.echo(f"beside it {settings.name}: the [ray] table that asks for GPU nodes; `run` copies it to the head node")
    for label, command in told.items():
        typer.echo(f"{label:5}  {command}")


def _check(kind: str, instance: str | None, region: str | None, image: str | None, package: str | None) -> None:
    from tilecast.sandbox.errors import UsageError

    if kind == "kubernetes":
        for flag, value in (("--instance", instance), ("--region", region)):
            if value is not None:
                raise UsageError(
                    f"{flag} {value}: is for aws and azure; on kubernetes the pool of nodes decides, "
                    "name its label with --node-selector KEY=VALUE"
                )
    if package == "none" and image is None:
        raise UsageError(
            "--package none: Ray's own image has no tilecast; name one that has it with --image, "
            "or what pip shall install with --package"
        )


def _refuse_overwriting(files: list[Path], force: bool) -> None:
    from tilecast.sandbox.errors import UsageError

    for file in files:
        if not force and (file.exists() or file.is_symlink()):
            raise UsageError(
                f"{file}: is there already; write over it with --force, or name another file with --output"
            )


def _package(given: str | None) -> str:
    from tilecast.sandbox.installed import own_version

    if given is not None:
        return "" if given == "none" else given
    number = own_version("")
    return f"tilecast[ray]=={number}" if number else "tilecast[ray]"


def _labels(given: list[str], kind: str) -> dict[str, str]:
    from tilecast.sandbox.errors import UsageError

    if given and kind != "kubernetes":
        raise UsageError(f"--node-selector is for kubernetes; {kind} takes --instance")
    for text in given:
        if not text.partition("=")[0] or "=" not in text:
            raise UsageError(f"--node-selector {text!r} is not KEY=VALUE")
    return {key: value for key, _, value in (text.partition("=") for text in given)}


def _text(config: dict[str, object], kind: str) -> str:
    import json

    import yaml

    reader = "KubeRay (kubectl apply)" if kind == "kubernetes" else "Ray (ray up)"
    head = (
        f"# For {reader}, written by tilecast cluster {kind}. No secret belongs in here:\n"
        "# keys of the cloud come from its own tools, a model's key from the environment of the shell that runs tilecast.\n"
    )
    # Through JSON, so that parts used twice are written out twice: YAML's anchors are hard on readers.
    plain = json.loads(json.dumps(config))
    return head + str(yaml.safe_dump(plain, sort_keys=False, width=160))


def _write(file: Path, text: str) -> None:
    from tilecast.sandbox.errors import UsageError

    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {file}: {error.strerror}") from error
