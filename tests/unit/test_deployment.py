"""All local runs of a project share one build, one at a time."""

from pathlib import Path

import pytest
import yaml

from local.deployment import Sam, write_templates
from local.processes import StartupError

# It writes what it is called with, as `sam build` writes its folders: dependencies where it runs.
_SAM = """#!/bin/sh
while test $# -gt 0; do case "$1" in --build-dir) build="$2";; --cache-dir) cache="$2";; esac; shift; done
mkdir "$build" busy || exit 1
echo built >"$build/template.yaml"; echo x >>deps; echo "$cache" >"$build/cache"
rmdir busy
"""
_FAILS = "#!/bin/sh\necho 'pip failed'\nexit 1\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my shop (Zoë's)"
    folder.mkdir()
    return folder


def build(project: Path, script: str = _SAM, work_dir: str = ".local") -> Path:
    program = project / "sam"
    program.write_text(script)
    program.chmod(0o755)
    (project / work_dir).mkdir(parents=True, exist_ok=True)
    return Sam(program, Path("/usr/bin/python3"), project, project / work_dir).build()


def test_all_runs_share_the_build_and_each_has_a_copy(project: Path) -> None:
    """Each build throws away the dependencies of all builds but its own. What has not changed is not built again,
    unless the last build has failed, which shows its log; a later one leaves the copies alone."""
    builds = project / ".local/sam/deps"
    first, second = build(project), build(project, work_dir=".local/demo")
    assert (first.read_text(), second.read_text(), builds.read_text()) == ("built\n", "built\n", "x\n")
    template = project / "template.yaml"
    for then in (template.unlink, template.touch):  # What the last good build was made of, and the same again.
        template.touch()
        with pytest.raises(StartupError, match="pip failed\\n`sam build` failed, as its log above says"):
            build(project, _FAILS)
        then()
        build(project)
    assert builds.read_text() == "x\nx\nx\n"
    (project / "functions/x").mkdir(parents=True)
    (project / "functions/x/app.py").touch()
    build(project, _SAM.replace("echo built", "echo built later"))
    assert (second.read_text(), builds.read_text()) == ("built\n", "x\nx\nx\nx\n")


def test_a_changed_builder_builds_anew(project: Path) -> None:
    """SAM compares what is built, and would take from its cache what the former builder has made."""
    caches = []
    for rules in ("leave out nothing", "leave out all", "leave out all"):
        (project / "layers/build").mkdir(parents=True, exist_ok=True)
        (project / "layers/build/build.py").write_text(rules)
        caches.append((build(project).parent / "cache").read_text())
    assert caches[0] != caches[1] == caches[2]


def test_the_emulator_gets_the_template_with_the_given_values_as_defaults(tmp_path: Path) -> None:
    """All else stays, but alarms on an expression. The built files may be linked into another run, whose copy keeps
    all. `sam local invoke` has the variables of env.json declared, too."""
    built = {
        "Parameters": {"Profile": {"Type": "String", "Default": "live"}, "LogLevel": {"Type": "String"}},
        "Globals": {"Function": {"Environment": {"Variables": {"A": "a"}}}},
        "Resources": {"A": {"Type": "B", "Properties": {"C": {"Ref": "Profile"}}}},
    }
    alarms = {"Resources": {"Plain": {"Properties": {"MetricName": "M"}}, "Sum": {"Properties": {"Metrics": []}}}}
    (tmp_path / "template.yaml").write_text(yaml.safe_dump(built))
    monitoring, linked = tmp_path / "Monitoring/template.yaml", tmp_path / "linked.yaml"
    monitoring.parent.mkdir()
    monitoring.write_text(yaml.safe_dump(alarms))
    linked.hardlink_to(monitoring)
    write_templates(tmp_path, {"Profile": "local"})
    deployed = yaml.safe_load((tmp_path / "deployed.yaml").read_text())
    assert deployed["Parameters"].pop("Profile") == {"Type": "String", "Default": "local"}
    assert deployed == {**built, "Parameters": {"LogLevel": {"Type": "String"}}}
    assert list(yaml.safe_load(monitoring.read_text())["Resources"]) == ["Plain"]
    assert yaml.safe_load(linked.read_text()) == alarms
    invoked = yaml.safe_load((tmp_path / "invoke.yaml").read_text())
    assert invoked["Globals"]["Function"]["Environment"]["Variables"].keys() > {"A", "AWS_ENDPOINT_URL"}
