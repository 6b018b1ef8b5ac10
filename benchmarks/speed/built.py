"""The functions as they are deployed: ours as `sam build` has made it, the others as pip installs them."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.speed.functions import BARE_PYTHON, LIBRARIES, PACKAGES, USUAL, Variant, onecharge
from local.deployment import Sam
from testing.harness import PROJECT

FUNCTION = "ChargeOrderFunction"
_NOT_DEPLOYED = ("pip", "bin", "aws_durable_execution")
"""What is in the environment of the other designs, and the usual module does not need."""


def build(work_dir: Path) -> Path:
    """Run `sam build` on this checkout; returns the folder of what it made. Raises StartupError."""
    tools = PROJECT / ".venv"
    sam = Sam(program=tools / "opt/sam/bin/sam", python=tools / "bin/python", project=PROJECT, work_dir=work_dir)
    return sam.build().parent


def folders_of(built: Path, function: str = FUNCTION) -> tuple[Path, ...]:
    """What Lambda would have on the path: the function's own folder, and each layer's, as the built template says."""
    template = yaml.safe_load((built / "template.yaml").read_text())
    resources = template["Resources"]
    properties = resources[function]["Properties"]
    named = [
        *_references(template["Globals"]["Function"].get("Layers", [])),
        *_references(properties.get("Layers", [])),
    ]
    layers = [name for name in named if resources.get(name, {}).get("Type") == "AWS::Serverless::LayerVersion"]
    paths = [built / resources[layer]["Properties"]["ContentUri"] / "python" for layer in dict.fromkeys(layers)]
    return (built / properties["CodeUri"], *paths)


def _references(node: Any) -> Iterator[str]:
    """The names that a value refers to, wherever in it."""
    if isinstance(node, dict):
        for function, arguments in node.items():
            if function == "Ref":
                yield arguments
            else:
                yield from _references(arguments)
    elif isinstance(node, list):
        for each in node:
            yield from _references(each)


def ours_built(built: Path) -> Variant:
    """charge_order, with nothing on its path but what `sam build` has made."""
    return replace(onecharge(name="onecharge-built"), folders=folders_of(built), python=BARE_PYTHON)


def libraries_built(built: Path) -> Variant:
    """The layers that charge_order has, without its own code."""
    return replace(LIBRARIES, folders=(*LIBRARIES.folders[:1], *folders_of(built)[1:]))


def usual_by_sam(work_dir: Path) -> Variant:
    """The usual module as plain `sam build` leaves it: without .pyc files, so that each cold start compiles it."""
    packages = work_dir / "usual"
    shutil.rmtree(packages, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", *(f"{name}*" for name in _NOT_DEPLOYED))
    shutil.copytree(PACKAGES, packages, ignore=ignored)
    title = f"{USUAL.title}, by plain sam build"
    return replace(USUAL, name="usual-by-sam", title=title, folders=(*USUAL.folders[:1], packages))


def megabytes(folders: tuple[Path, ...]) -> float:
    """What the folders hold, unzipped."""
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()) / 1e6


def usual_megabytes() -> float:
    """What pip installs for the usual module, .pyc files included, unzipped."""
    wanted = [path for path in PACKAGES.iterdir() if not path.name.startswith(_NOT_DEPLOYED)]
    alone = sum(path.stat().st_size for path in wanted if path.is_file()) / 1e6
    return alone + megabytes(tuple(path for path in wanted if path.is_dir()))
