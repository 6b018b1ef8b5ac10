"""What builds the functions and layers: which AWS services' data is shipped, and what a build that fails says."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from local.samples import logical_id_of
from sam_build.build import AWS_SERVICES, KEPT, LEFT_OUT, leave_out, package_of
from testing.harness import PROJECT, load_template

FUNCTIONS = sorted(path.parent.name for path in PROJECT.glob("functions/*/app.py"))


def services_called() -> set[str]:
    """The first argument of each `aws_client(...)` in what is deployed."""
    return {
        str(ast.literal_eval(node.args[0]))
        for folder in ("functions", "shared")
        for path in (PROJECT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "aws_client"
    }


def test_the_data_of_each_service_that_is_called_is_shipped() -> None:
    """And of no other: `UnknownServiceError` would come with the first event, on AWS alone."""
    assert services_called() == set(AWS_SERVICES)


def test_no_client_is_made_in_another_way() -> None:
    """The test above would not see it."""
    paths = [path for folder in ("functions", "shared") for path in (PROJECT / folder).rglob("*.py")]
    makers = ("import boto3", "Session(", "get_session(", "create_client(")
    makes = {path.name for path in paths if any(maker in path.read_text() for maker in makers)}
    assert makes == {"aws.py"}


def test_only_what_is_named_is_left_out(tmp_path: Path) -> None:
    """Here: a service that nobody calls, type hints of Stripe's, a program; and their lines in RECORD."""
    left_out = ["bin/jp.py", "botocore/data/iot/2015/service-2.json.gz", "stripe/params/__init__.py"]
    kept = ["botocore/data/dynamodb/2012/service-2.json.gz", "botocore/data/endpoints.json", "stripe/__init__.py"]
    for name in (*left_out, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    record = tmp_path / "any-1.0.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text("".join(f"{name},sha256=x,0\n" for name in (*left_out, *kept)))
    leave_out(tmp_path)
    assert [name for name in (*left_out, *kept) if (tmp_path / name).exists()] == kept
    assert record.read_text() == "".join(f"{name},sha256=x,0\n" for name in kept)


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    """A release of a library that renames it would ship it unseen."""
    installed = Path(pytest.__file__).parent.parent
    gone = {"bin", "*.data"}
    """pip puts programs and data elsewhere in an environment."""
    assert {pattern for pattern in LEFT_OUT if not any(installed.glob(pattern))} <= gone
    assert {name for name in KEPT if not (installed / name).is_dir()} == set()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_packaged_under_its_own_name(function: str) -> None:
    """By its logical id; it is what its handler is imported by."""
    assert package_of(logical_id_of(function)) == function
    properties = load_template()["Resources"][logical_id_of(function)]["Properties"]
    assert properties["Handler"] == f"{function}.app.handler"


def test_a_package_that_cannot_be_installed_fails_the_build(tmp_path: Path) -> None:
    """Here: no file has the hash. The build ends with what pip says, then one line."""
    (tmp_path / "requirements.txt").write_text(f"stripe==16.1.0 --hash=sha256:{'0' * 64}\n")
    environment = {**os.environ, "ARTIFACTS_DIR": str(tmp_path / "built"), "PIP_NO_INDEX": "1"}
    command = [sys.executable, str(PROJECT / "sam_build/build.py"), "StripeLayer", "--architecture", "arm64"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "stripe" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("pip could not install requirements.txt")
