"""Builds one layer or function for Lambda: what it needs and nothing else, with its .pyc files.

`sam build` runs this for every layer and function of template.yaml (Metadata), in a copy of the folder that CodeUri or
ContentUri names:

    ARTIFACTS_DIR=… python3.13 build.py LibrariesLayer --architecture arm64

    layers/NAME/requirements.txt   ─► python/…       the packages, by their hashes, without what `LEFT_OUT` names, and
                                                     with botocore's data shortened to what its clients read
    shared/onecharge/              ─► python/onecharge/
    functions/charge_order/        ─► charge_order/

Lambda mounts /opt and /var/task read-only, so no .pyc that is missing is ever written: without them each cold start
compiles each module that it imports. They are made unchecked-hash: Python takes them as they are (PEP 552). With
timestamps instead it would look at each source file, and take none of them if a zip changes the times.

It uses Python's standard library alone, since it runs before anything is installed.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PLATFORMS = {"arm64": "aarch64", "x86_64": "x86_64"}
"""Lambda's name of an architecture, and that of Python's wheels."""
GLIBC_VERSIONS = ("2_34", "2_28", "2_17")
"""Of wheels that run on Lambda: its python3.13 runs on Amazon Linux 2023, which has glibc 2.34."""

AWS_SERVICES = ("dynamodb", "lambda", "s3", "secretsmanager", "sns", "sqs")
"""The services that the functions call, as `aws_client` names them: only these have their data shipped."""

LEFT_OUT = (
    # Programs, with the path of the Python that has installed them.
    "bin",
    "*.data",
    # Descriptions of AWS's 400 other services, and examples.
    "botocore/data/*/",
    "botocore/data/*/*/examples-1.json",
    # What writes the documentation of botocore's clients. All of them import it, for help(): REPLACEMENTS has the rest.
    "botocore/docs/*",
    # Of Stripe's SDK: the types of parameters, for type checkers alone.
    "stripe/params",
    # Of Powertools: what serves other kinds of functions.
    "aws_lambda_powertools/event_handler/openapi/swagger_ui",
    "aws_lambda_powertools/utilities/auth_alpha",
    "aws_lambda_powertools/utilities/batch",
    "aws_lambda_powertools/utilities/circuit_breaker",
    "aws_lambda_powertools/utilities/data_masking",
    "aws_lambda_powertools/utilities/feature_flags",
    "aws_lambda_powertools/utilities/idempotency",
    "aws_lambda_powertools/utilities/kafka",
    "aws_lambda_powertools/utilities/parameters",
    "aws_lambda_powertools/utilities/parser",
    "aws_lambda_powertools/utilities/streaming",
    # Of other libraries: the former API of pydantic, a plugin of a tool, another platform, HTTP/2.
    "pydantic/v1",
    "pydantic/mypy.py",
    "urllib3/contrib/emscripten",
    "urllib3/http2/connection.py",
)
"""What is installed and not shipped, as `Path.glob` reads it: a pattern that ends with / matches folders only.

tests/artifact reads every import statement of what is shipped, those that rarely run included: none that can run names
what is left out.
"""
KEPT = (
    *(f"botocore/data/{service}" for service in AWS_SERVICES),
    *(f"botocore/docs/{name}.py" for name in ("__init__", "docstring", "utils")),
)
"""What is shipped all the same."""

REPLACEMENTS = Path(__file__).parent / "replacements"
"""Modules that are shipped instead of a library's own, at the same path."""


class BuildError(Exception):
    """What is asked for cannot be built; says why."""


def build(logical_id: str, architecture: str, *, source: Path, artifacts: Path) -> None:
    """Build the layer or function of this logical id into the folder. Raises BuildError."""
    artifacts.mkdir(parents=True, exist_ok=True)
    if (requirements := source / "requirements.txt").is_file():
        root, mounted_at = artifacts / "python", "/opt/python"
        install(requirements, architecture, root)
        leave_out(root)
        replace_modules(root)
        shorten_data(root / "botocore/data")
        record_again(root)
    elif logical_id.endswith("Layer"):
        root, mounted_at = artifacts / "python", "/opt/python"
        copy_code(source, root)
    else:
        root, mounted_at = artifacts, "/var/task"
        copy_code(source, root / package_of(logical_id))
    compile_all(root, mounted_at)


def package_of(logical_id: str) -> str:
    """The package of a function: ChargeOrderFunction has `charge_order`."""
    words = re.findall("[A-Z][a-z0-9]*", logical_id.removesuffix("Function"))
    return "_".join(words).lower()


def install(requirements: Path, architecture: str, root: Path) -> None:
    """Install the packages for Lambda, whatever this machine is. Raises BuildError."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    # The file names every package there is. What another layer has is not in it, so pip must not look for it.
    command += ["--require-hashes", "--no-deps", "--no-compile", "--target", str(root), "-r", str(requirements)]
    command += ["--only-binary=:all:", "--implementation", "cp", "--python-version", "3.13"]
    for glibc in GLIBC_VERSIONS:
        command += ["--platform", f"manylinux_{glibc}_{PLATFORMS[architecture]}"]
    command += ["--platform", f"manylinux2014_{PLATFORMS[architecture]}"]
    if code := subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise BuildError(f"pip could not install {requirements.name} (exit status {code}); it says why above")


def leave_out(root: Path) -> None:
    """Remove what is not shipped."""
    for pattern in LEFT_OUT:
        for path in list(root.glob(pattern)):
            if path.relative_to(root).as_posix() not in KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def replace_modules(root: Path) -> None:
    """Put our modules in the place of the library's, if it is in this folder."""
    for path in REPLACEMENTS.rglob("*.py"):
        target = root / path.relative_to(REPLACEMENTS)
        if target.exists():
            shutil.copyfile(path, target)


def shorten_data(data: Path) -> None:
    """Leave out of botocore's data the texts, which serve help() alone, and the endpoints of services nobody calls.

    The first client of a cold start parses the endpoints, each client the description of its service: 1.8 MB of JSON
    for DynamoDB's, 0.2 MB without.
    """
    if (endpoints := data / "endpoints.json").exists():
        known = json.loads(endpoints.read_bytes())
        for partition in known["partitions"]:
            called = {name: each for name, each in partition["services"].items() if name in AWS_SERVICES}
            partition["services"] = called
        endpoints.write_bytes(compact(known))
    for path in data.glob("*/*/service-2.json.gz"):
        description = without_texts(json.loads(gzip.decompress(path.read_bytes())))
        path.write_bytes(gzip.compress(compact(description), mtime=0))  # The same bytes each time.


def without_texts(node: Any) -> Any:
    """A service's description without its documentation; a member that is called so is no text, and stays.

    botocore fails without the texts of a client's own parameters, which S3 has.
    """
    if isinstance(node, dict):
        kept = {name: each for name, each in node.items() if name != "documentation" or not isinstance(each, str)}
        return {name: each if name == "clientContextParams" else without_texts(each) for name, each in kept.items()}
    if isinstance(node, list):
        return [without_texts(each) for each in node]
    return node


def compact(data: Any) -> bytes:
    """As JSON, on one line."""
    return json.dumps(data, separators=(",", ":")).encode()


def record_again(root: Path) -> None:
    """Let each package's record of its files, with their hashes and sizes, be of what is shipped.

    Source: Python Packaging User Guide, "Recording installed projects", "The RECORD file".
    """
    for record in root.glob("*.dist-info/RECORD"):
        names = [line.split(",")[0] for line in record.read_text().splitlines()]
        shipped = [name for name in names if (root / name).exists()]
        # Its own line has neither.
        lines = [f"{name},{',' if root / name == record else hash_and_size(root / name)}\n" for name in shipped]
        record.write_text("".join(lines))


def hash_and_size(path: Path) -> str:
    """Of a file, as RECORD has them."""
    content = path.read_bytes()
    digest = urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"sha256={digest},{len(content)}"


def copy_code(source: Path, target: Path) -> None:
    """Copy a folder of our own code, without what Python or an editor has left there."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", ".*"))


def compile_all(root: Path, mounted_at: str) -> None:
    """Compile every module; the same sources make the same bytes. Raises BuildError."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-o", "0"]
    # In a traceback a module has the path that it has on Lambda, not the one where it was built.
    command += ["-s", str(root), "-p", mounted_at, str(root)]
    # A set among a module's constants is written in the order of its hashes.
    if subprocess.run(command, check=False, env={**os.environ, "PYTHONHASHSEED": "0"}).returncode:
        raise BuildError("a module could not be compiled")


def main(arguments: Sequence[str]) -> str | None:
    """Build what SAM asks for; returns what is wrong, if anything is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logical_id")
    parser.add_argument("--architecture", choices=PLATFORMS, required=True)
    parsed = parser.parse_args(arguments)
    if sys.version_info[:2] != (3, 13):
        return f"Python 3.13 has to build, since its .pyc files are for 3.13 alone; this is {sys.version.split()[0]}"
    try:
        build(parsed.logical_id, parsed.architecture, source=Path.cwd(), artifacts=Path(os.environ["ARTIFACTS_DIR"]))
    except BuildError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
