"""Builds and publishes what is saved under functions/ or shared/ while a stack runs, in a second."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from local.deployment import Sam, digest
from local.project_files import PROJECT
from local.samples import logical_id_of
from local.stack import Stack

SHARED = "shared"
_AT_START = ("template.yaml", "monitoring.yaml", "layers")
"""Deployed only by a new start."""


def contents(project: Path) -> dict[str, str]:
    """The digest of each function's folder, and of everything else that is deployed."""
    functions = [str(path.parent.relative_to(project)) for path in project.glob("functions/*/app.py")]
    return {name: digest(project, name) for name in (*sorted(functions), SHARED, *_AT_START)}


def deploy_what_changes(stack: Stack, deployed: Mapping[str, str], say: Callable[[str], object]) -> NoReturn:
    """Deploy what differs from `deployed`, and go on until Ctrl-C."""
    seen = tried = deployed
    while True:
        time.sleep(1)
        try:
            last, seen = seen, contents(PROJECT)
        except FileNotFoundError:  # An editor, or git, is replacing it.
            continue
        if seen in (deployed, tried) or seen != last:  # An editor may still be saving.
            continue
        changed = [name for name, content in seen.items() if content != deployed.get(name)]
        deployed = tried = seen
        if restart := [name for name in changed if name in _AT_START]:
            say(f"{', '.join(restart)} changed: to deploy it, press Ctrl-C, and start this again")
        try:
            if published := deploy(stack, changed, PROJECT):
                say(f"{', '.join(changed)} changed: {', '.join(published)} published")
        except subprocess.CalledProcessError as failed:
            deployed = {**seen, **dict.fromkeys(changed, "")}  # Which of them were published is not known.
            say(f"{', '.join(changed)} changed, and is not published:\n{failed.stdout.strip()}")


def deploy(stack: Stack, changed: Collection[str], project: Path) -> list[str]:
    """Update each function that the changed folders are part of, as CloudFormation would.

    Returns:
        The names of these functions.

    Raises:
        subprocess.CalledProcessError: a folder cannot be built; nothing after it is published.
    """
    client = stack.aws.client("lambda")
    layer, published = "", list[str]()
    if SHARED in changed:
        content = {"ZipFile": _built("SharedLayer", project / SHARED, project)}
        answer = client.publish_layer_version(LayerName=f"{stack.stack_name}-{SHARED}", Content=content)
        layer = answer["LayerVersionArn"]
    for folder in sorted(path.parent for path in project.glob("functions/*/app.py")):
        logical_id, is_changed = logical_id_of(folder.name), f"functions/{folder.name}" in changed
        if not (is_changed or layer):
            continue
        function = stack.aws.physical_id(stack.stack_name, logical_id)
        if is_changed:
            client.update_function_code(FunctionName=function, ZipFile=_built(logical_id, folder, project))
        if layer:
            present = client.get_function_configuration(FunctionName=function)["Layers"]
            of_shared = layer.rpartition(":")[0]
            layers = [layer if each["Arn"].startswith(f"{of_shared}:") else each["Arn"] for each in present]
            client.update_function_configuration(FunctionName=function, Layers=layers)
        published.append(folder.name)
    return published


def _built(logical_id: str, source: Path, project: Path) -> bytes:
    """The zip that `sam build` and `sam deploy` would make of this folder."""
    with TemporaryDirectory() as folder:
        artifacts = Path(folder) / "artifacts"
        build = project / "layers/build/build.py"
        command = [sys.executable, str(build), logical_id, Sam.architecture_here(), str(source)]
        environment = {**os.environ, "ARTIFACTS_DIR": str(artifacts)}
        subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return Path(shutil.make_archive(str(artifacts), "zip", artifacts)).read_bytes()
