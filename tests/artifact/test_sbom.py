"""The software bills of materials name what is shipped: every package of every built artifact, and no other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.samples import logical_id_of
from local.sbom import SHARED, requirements_of, write_bills
from local.stack import Stack
from testing.harness import PROJECT

pytestmark = pytest.mark.skipif(
    not (PROJECT / ".venv/opt/scanners").is_dir(), reason="`make sbom` installs what writes the bills"
)


def shipped_in(artifact: Path) -> Iterator[tuple[str, str]]:
    """Name and version of each package in a built artifact, by the metadata that its wheel has left there."""
    for metadata in artifact.rglob("*.dist-info/METADATA"):
        headers = dict(re.findall(r"^(Name|Version): (.+)$", metadata.read_text(), re.MULTILINE))
        yield normalized(headers["Name"]), headers["Version"]


def normalized(name: str) -> str:
    """As the Python packaging specification compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_shipped_package_is_in_its_bill(stack: Stack, stack_dir: Path, tmp_path: Path) -> None:
    """With its version; and nothing is in a bill that is not shipped."""
    write_bills(tmp_path)
    for name in requirements_of(PROJECT):
        bill = json.loads((tmp_path / f"{name}.json").read_text())
        listed = {(normalized(each["name"]), each["version"]) for each in bill["components"]}
        is_layer = name == SHARED or (PROJECT / "layers" / name).is_dir()
        artifact = stack_dir / "build" / (f"{name.title()}Layer" if is_layer else logical_id_of(name))
        assert artifact.is_dir()
        assert listed == set(shipped_in(artifact)), name


def test_nothing_is_shipped_without_metadata(stack: Stack, stack_dir: Path) -> None:
    """A package without a dist-info would be in no bill: every top-level folder is ours or some package's."""
    build = stack_dir / "build"
    for artifact in (*build.glob("*Layer/python"), *build.glob("*Function")):
        recorded = {
            line.split("/")[0].split(",")[0]
            for record in artifact.glob("*.dist-info/RECORD")
            for line in record.read_text().splitlines()
        }
        ours = {"onecharge", *(path.parent.name for path in PROJECT.glob("functions/*/app.py"))}
        present = {path.name for path in artifact.iterdir()}
        assert present - recorded - ours - {"__pycache__"} == set(), artifact.name


def test_the_bills_are_cyclonedx_and_the_same_each_time(tmp_path: Path) -> None:
    """With hashes and package URLs, by which a scanner finds what is vulnerable; no time, no random id."""
    first = {path.name: path.read_text() for path in write_bills(tmp_path / "first")}
    again = {path.name: path.read_text() for path in write_bills(tmp_path / "again")}
    assert first == again
    layer = json.loads(first["libraries.json"])
    assert (layer["bomFormat"], layer["specVersion"]) == ("CycloneDX", "1.6")
    assert layer["components"]
    for component in layer["components"]:
        assert component["purl"].startswith("pkg:pypi/")
        assert component["externalReferences"][0]["hashes"]
