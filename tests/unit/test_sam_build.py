"""layers/build/build.py: what each function and layer is built of, and what a build that fails says."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import botocore
import pytest

from layers.build.build import AWS_SERVICES, build, endpoints_of_ours, package_of
from local.samples import logical_id_of
from tests.support.harness import PROJECT, load_template


def test_the_data_of_each_service_that_is_called_is_shipped() -> None:
    """And of no other: `UnknownServiceError` would come with the first event, on AWS alone. Of our services the
    endpoints, which each cold start parses, are botocore's own."""
    sources = [path.read_text() for name in ("functions", "shared") for path in (PROJECT / name).rglob("*.py")]
    assert {name for source in sources for name in re.findall(r'client[(,]\s*"([a-z0-9]+)"', source)} == AWS_SERVICES
    text = (Path(botocore.__path__[0]) / "data/endpoints.json").read_text()
    whole, shipped = json.loads(text), json.loads(endpoints_of_ours(text))
    assert {name for each in shipped["partitions"] for name in each["services"]} == AWS_SERVICES
    for before, after in zip(whole["partitions"], shipped["partitions"], strict=True):
        assert before == {**after, "services": before["services"]}
        assert after["services"].items() <= before["services"].items()


def test_a_function_is_packaged_under_its_own_name() -> None:
    """By its logical id; it is what its handler is imported by."""
    resources = load_template()["Resources"]
    for function in (path.parent.name for path in PROJECT.glob("functions/*/app.py")):
        assert package_of(logical_id_of(function)) == function
        assert resources[logical_id_of(function)]["Properties"]["Handler"] == f"{function}.app.handler"


def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    """Each module is compiled, with its path on Lambda."""
    built = []
    for root in (tmp_path / "once", tmp_path / "again"):
        build("SharedLayer", "arm64", source=PROJECT / "shared", artifacts=root)
        files = [path for path in root.rglob("*") if path.is_file()]
        built.append({path.relative_to(root).as_posix(): path.read_bytes() for path in files})
    assert built[0] == built[1]
    compiled = {name.partition(".cpython")[0].replace("__pycache__/", ""): name for name in built[0] if "pyc" in name}
    sources = [name for name in built[0] if name.endswith(".py")]
    assert {name.removesuffix(".py") for name in sources} == compiled.keys()
    assert all(f"/opt/{name}".encode() in built[0][compiled[name.removesuffix(".py")]] for name in sources)


@pytest.mark.parametrize("python", ["shop/.venv/bin/python3.13", "on PATH/python3.13"])
def test_sam_build_needs_no_prepared_shell(python: str, tmp_path: Path) -> None:
    """The project's environment builds, if it is there; else python3.13 of PATH, called inside the project: a shim of
    pyenv's looks there for .python-version, and SAM calls the Makefile in another folder."""
    project = tmp_path / "my shop (Zoë's)"
    shutil.copytree(PROJECT / "layers/build", project / "layers/build")
    program = tmp_path / python.replace("shop", project.name)
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$PWD" "$@"\n')
    program.chmod(0o755)
    (source := tmp_path / "a copy").mkdir()
    done = subprocess.run(
        ["make", "--makefile", str(project / "layers/build/arm64/Makefile"), "build-SharedLayer"],
        cwd=source,
        env={"PATH": f"{tmp_path / 'on PATH'}:{os.defpath}"},
        capture_output=True,
        text=True,
        check=True,
    )
    called = [str(project / "layers/build"), "build.py", "SharedLayer", "arm64", str(source)]
    assert done.stdout.splitlines() == called


def test_a_package_that_cannot_be_installed_fails_the_build(tmp_path: Path) -> None:
    """Here: no file has the hash. The build ends with what pip says, then one line."""
    (tmp_path / "requirements.txt").write_text(f"stripe==16.1.0 --hash=sha256:{'0' * 64}\n")
    environment = {**os.environ, "ARTIFACTS_DIR": str(tmp_path / "built"), "PIP_NO_INDEX": "1"}
    command = [sys.executable, str(PROJECT / "layers/build/build.py"), "StripeLayer", "arm64", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "pip failed (exit status 1); it says why above"
