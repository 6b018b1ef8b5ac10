"""Builds one layer or function for Lambda. `sam build` runs this for each one (`BuildMethod: makefile`, template.yaml).

    ARTIFACTS_DIR=… python3.13 build.py LibrariesLayer arm64 FOLDER    a copy of what CodeUri or ContentUri names

    layers/NAME/requirements.txt   ─► python/…               the packages, by their hashes
    shared/onecharge/              ─► python/onecharge/
    functions/charge_order/        ─► charge_order/

SAM's own builder ships no .pyc files, and Lambda mounts the code read-only: each cold start would compile each module
that it imports, and take 1.6 s instead of 0.5 s. They are unchecked-hash (PEP 552), so Python takes them as they are:
with timestamps it would take none of them, since a zip changes the times.

This script uses the standard library alone, since it runs before anything is installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PLATFORMS = {"arm64": "aarch64", "x86_64": "x86_64"}
"""The name that Python's wheels have for each of Lambda's architectures."""

WHEELS = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
"""What runs on Lambda: its python3.13 runs on Amazon Linux 2023, which has glibc 2.34."""

AWS_SERVICES = frozenset({"dynamodb", "secretsmanager", "sns", "sqs"})
"""The services that the functions call. botocore's data of 400 others, a third of all packages, is not shipped. Nor are
their endpoints, which each cold start would parse: 1.2 MB of JSON, 5 MB of memory."""


def build(logical_id: str, architecture: str, source: Path, artifacts: Path) -> None:
    """Build the layer or function of this logical id. Raises subprocess.CalledProcessError."""
    is_layer = logical_id.endswith("Layer")
    root = artifacts / "python" if is_layer else artifacts
    if (requirements := source / "requirements.txt").is_file():
        install(requirements, architecture, root)
    else:
        target = root if is_layer else root / package_of(logical_id)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".*"), dirs_exist_ok=True)
    compile_all(root, mounted_at="/opt/python" if is_layer else "/var/task")


def package_of(logical_id: str) -> str:
    """The package of a function: ChargeOrderFunction has `charge_order`."""
    return "_".join(re.findall("[A-Z][a-z0-9]*", logical_id.removesuffix("Function"))).lower()


def install(requirements: Path, architecture: str, root: Path) -> None:
    """Install the packages for Lambda, whatever this machine is."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    # The file names every package there is. What another layer has is not in it, so pip must not look for it.
    command += ["--require-hashes", "--no-deps", "--no-compile", "--target", str(root), "-r", str(requirements)]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", "3.13"]
    for wheel in WHEELS:
        command += ["--platform", f"{wheel}_{PLATFORMS[architecture]}"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    for data in root.glob("botocore/data/*/"):
        if data.name not in AWS_SERVICES:
            shutil.rmtree(data)
    for path in root.glob("botocore/data/endpoints.json"):
        path.write_text(endpoints_of_ours(path.read_text()))


def endpoints_of_ours(endpoints: str) -> str:
    """botocore's endpoints, without those of other services."""
    document = json.loads(endpoints)
    for partition in document["partitions"]:
        partition["services"] = {name: each for name, each in partition["services"].items() if name in AWS_SERVICES}
    return json.dumps(document)


def compile_all(root: Path, *, mounted_at: str) -> None:
    """Compile every module; the same sources make the same bytes."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(root), "-p", mounted_at, str(root)]  # In a traceback a module has its path on Lambda.
    # Python writes a set among a module's constants in the order of its hashes.
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})


if __name__ == "__main__":
    if sys.version_info[:2] != (3, 13):
        sys.exit(f"Python 3.13 has to build, since .pyc files are for one version; this is {sys.version.split()[0]}")
    try:
        build(sys.argv[1], sys.argv[2], source=Path(sys.argv[3]), artifacts=Path(os.environ["ARTIFACTS_DIR"]))
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{failed.cmd[2]} failed (exit status {failed.returncode}); it says why above")
