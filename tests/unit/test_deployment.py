"""All local runs of a project share one build, one at a time; a build that fails says what it needs."""

from pathlib import Path

import pytest
import yaml

from local.deployment import Sam, with_defaults, without_expressions
from local.processes import StartupError

# It writes what it is called with, as `sam build` writes its folders: dependencies where it runs.
_SAM = """#!/bin/sh
while test $# -gt 0; do case "$1" in --build-dir) build="$2";; --cache-dir) cache="$2";; esac; shift; done
mkdir "$build" busy || exit 1
sleep 0.2
echo "$PWD" >"$build/built-in"; echo built >"$build/template.yaml"; echo x >>deps; echo "$cache" >"$build/cache"
rmdir busy
"""
_FAILS = """#!/bin/sh
echo 'Building layer'
echo 'Build Failed'
echo '{}'
exit 1
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my shop (Zoë's)"
    folder.mkdir()
    return folder


def sam(project: Path, script: str, work_dir: str) -> Sam:
    program = project / "sam"
    program.write_text(script)
    program.chmod(0o755)
    (project / work_dir).mkdir(parents=True, exist_ok=True)
    return Sam(program, Path("/usr/bin/python3"), project, project / work_dir)


def test_two_runs_share_the_build(project: Path) -> None:
    """Each build throws away the dependencies of all builds but its own; so there is one, and each run has a copy.

    What has not changed is not built again.
    """
    for work_dir in (".local", ".local/demo"):
        template = sam(project, _SAM, work_dir).build()
        assert template.read_text() == "built\n"
        assert template.is_relative_to(project / work_dir)
    assert (project / ".local/sam/deps").read_text() == "x\n"
    (project / "functions/x").mkdir(parents=True)
    (project / "functions/x/app.py").touch()
    sam(project, _SAM, ".local").build()
    assert (project / ".local/sam/deps").read_text() == "x\nx\n"


def test_a_build_that_failed_is_repeated(project: Path) -> None:
    """Also once the project is again as it was at the last build that did not fail."""
    sam(project, _SAM, ".local").build()
    (project / "template.yaml").touch()
    with pytest.raises(StartupError):
        sam(project, _FAILS, ".local").build()
    (project / "template.yaml").unlink()
    assert sam(project, _SAM, ".local").build().read_text() == "built\n"
    assert (project / ".local/sam/deps").read_text() == "x\nx\n"


def test_a_later_build_leaves_the_copies_alone(project: Path) -> None:
    """The first run goes on with what was built for it."""
    first = sam(project, _SAM, ".local").build()
    (project / "template.yaml").touch()
    sam(project, _SAM.replace("echo built", "echo built later"), ".local/demo").build()
    assert first.read_text() == "built\n"


def test_a_changed_builder_builds_anew(project: Path) -> None:
    """SAM compares what is built, and would take from its cache what the former builder has made."""
    caches = []
    for rules in ("leave out nothing", "leave out all", "leave out all"):
        (project / "layers/build").mkdir(parents=True, exist_ok=True)
        (project / "layers/build/build.py").write_text(rules)
        template = sam(project, _SAM, ".local").build()
        caches.append((template.parent / "cache").read_text())
    assert caches[0] != caches[1] == caches[2]


@pytest.mark.parametrize(
    ("sentence", "advice"),
    [
        ("pip failed (exit status 1); it says why above", ": it needs the package index; run "),
        ("Error: [Errno 28] No space left on device", ": free some space"),
        ("Error: Template file not found", "sam-build.log)"),
    ],
)
def test_a_build_that_fails_says_what_to_do(project: Path, sentence: str, advice: str) -> None:
    """In the last line; the log's own lines are above it."""
    with pytest.raises(StartupError) as failed:
        sam(project, _FAILS.format(sentence), ".local").build()
    *log, last_line = str(failed.value).splitlines()
    assert sentence in log
    assert last_line.startswith("`sam build` failed, as its log above says")
    assert advice in last_line


def test_the_emulator_gets_the_given_values_as_defaults() -> None:
    """SAM's transform sees only these there. All else stays, so what is deployed is the template."""
    built = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Parameters": {"Profile": {"Type": "String", "Default": "live"}, "LogLevel": {"Type": "String"}},
        "Resources": {"A": {"Type": "B", "Properties": {"C": {"Ref": "Profile"}}}},
    }
    deployed = yaml.safe_load(with_defaults(yaml.safe_dump(built), {"Profile": "local"}))
    assert deployed["Parameters"].pop("Profile") == {"Type": "String", "Default": "local"}
    assert deployed == {**built, "Parameters": {"LogLevel": {"Type": "String"}}}


def test_the_emulator_gets_no_alarm_on_an_expression(tmp_path: Path) -> None:
    """Everything else stays; the built file may be linked into another run, whose copy keeps all."""
    built = tmp_path / "Monitoring/template.yaml"
    built.parent.mkdir()
    resources = {"Plain": {"Properties": {"MetricName": "Alarm"}}, "Sum": {"Properties": {"Metrics": []}}}
    built.write_text(yaml.safe_dump({"Resources": resources}))
    linked = tmp_path / "linked.yaml"
    linked.hardlink_to(built)
    without_expressions(tmp_path)
    assert list(yaml.safe_load(built.read_text())["Resources"]) == ["Plain"]
    assert yaml.safe_load(linked.read_text())["Resources"] == resources
