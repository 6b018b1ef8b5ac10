"""layers/build/build.py: what each function and layer is built of, and what a build that fails says."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import botocore
import pytest

from layers.build.build import AWS_SERVICES, PLATFORMS, build, endpoints_of_ours, package_of
from local.samples import logical_id_of
from tests.support.harness import PROJECT, load_template

FUNCTIONS = sorted(path.parent.name for path in PROJECT.glob("functions/*/app.py"))


def test_the_data_of_each_service_that_is_called_is_shipped() -> None:
    """And of no other: `UnknownServiceError` would come with the first event, on AWS alone."""
    sources = [path.read_text() for name in ("functions", "shared") for path in (PROJECT / name).rglob("*.py")]
    assert {name for source in sources for name in re.findall(r'client[(,]\s*"([a-z0-9]+)"', source)} == AWS_SERVICES


def test_the_endpoints_of_other_services_are_left_out() -> None:
    """Each cold start parses the file; of our services it says what botocore's own does."""
    [file] = (Path(path) / "data/endpoints.json" for path in botocore.__path__)
    whole, shipped = json.loads(file.read_text()), json.loads(endpoints_of_ours(file.read_text()))
    assert {name for each in shipped["partitions"] for name in each["services"]} == AWS_SERVICES
    for before, after in zip(whole["partitions"], shipped["partitions"], strict=True):
        assert before == {**after, "services": before["services"]}
        assert after["services"].items() <= before["services"].items()


def test_a_function_is_packaged_under_its_own_name() -> None:
    """By its logical id; it is what its handler is imported by."""
    resources = load_template()["Resources"]
    for function in FUNCTIONS:
        assert package_of(logical_id_of(function)) == function
        assert resources[logical_id_of(function)]["Properties"]["Handler"] == f"{function}.app.handler"


def test_every_module_is_compiled(tmp_path: Path) -> None:
    """For Python 3.13, from just this source, without a look at it (PEP 552), and with its path on Lambda; the same
    sources make the same bytes."""
    roots = [tmp_path / name for name in ("once", "again")]
    for root in roots:
        build("SharedLayer", "arm64", source=PROJECT / "shared", artifacts=root)
    for source in (roots[0] / "python").rglob("*.py"):
        compiled = Path(importlib.util.cache_from_source(source)).read_bytes()
        header = importlib.util.MAGIC_NUMBER + (0b01).to_bytes(4, "little")
        assert compiled[:16] == header + importlib.util.source_hash(source.read_bytes())
        assert f"/opt/python/{source.relative_to(roots[0] / 'python')}".encode() in compiled
    assert contents(roots[0]) == contents(roots[1])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("python", ["shop/.venv/bin/python3.13", "on PATH/python3.13"])
@pytest.mark.parametrize("architecture", PLATFORMS)
def test_sam_build_needs_no_prepared_shell(architecture: str, python: str, tmp_path: Path) -> None:
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
        ["make", "--makefile", str(project / f"layers/build/{architecture}/Makefile"), "build-SharedLayer"],
        cwd=source,
        env={"PATH": f"{tmp_path / 'on PATH'}:{os.defpath}"},
        capture_output=True,
        text=True,
        check=True,
    )
    called_in, *words = done.stdout.splitlines()
    assert called_in == str(project / "layers/build")
    assert words == ["build.py", "SharedLayer", architecture, str(source)]


def test_a_package_that_cannot_be_installed_fails_the_build(tmp_path: Path) -> None:
    """Here: no file has the hash. The build ends with what pip says, then one line."""
    (tmp_path / "requirements.txt").write_text(f"stripe==16.1.0 --hash=sha256:{'0' * 64}\n")
    environment = {**os.environ, "ARTIFACTS_DIR": str(tmp_path / "built"), "PIP_NO_INDEX": "1"}
    command = [sys.executable, str(PROJECT / "layers/build/build.py"), "StripeLayer", "arm64", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "stripe" in done.stderr
    assert done.stderr.splitlines()[-1] == "pip failed (exit status 1); it says why above"
