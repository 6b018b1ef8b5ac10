"""The software bills of materials name what is shipped: `sam build` installs the same requirements, by their hashes."""

import json
import re
from pathlib import Path

import pytest

from local.sbom import requirements_of, write_bills
from testing.harness import PROJECT

pytestmark = pytest.mark.skipif(
    not (PROJECT / ".venv/opt/scanners").is_dir(), reason="`make sbom` installs what writes the bills"
)


def test_every_pinned_package_is_in_its_bill(tmp_path: Path) -> None:
    """With its version, its hashes and its package URL, by which a scanner finds what is vulnerable; no other is."""
    bills = {path.stem: json.loads(path.read_text()) for path in write_bills(tmp_path)}
    for name, requirements in requirements_of(PROJECT).items():
        pinned = re.findall(r"^(\S+)==(\S+)", requirements.read_text(), re.MULTILINE) if requirements.is_file() else []
        components = bills[name]["components"]
        assert {(each["name"], each["version"]) for each in components} == set(pinned)
        assert [each for each in components if not each["purl"].startswith("pkg:pypi/")] == []
        assert [each for each in components if not each["externalReferences"][0]["hashes"]] == []
        assert (bills[name]["bomFormat"], bills[name]["specVersion"]) == ("CycloneDX", "1.6")


def test_the_bills_are_the_same_each_time(tmp_path: Path) -> None:
    """They hold no time and no random id."""
    first, again = ([path.read_text() for path in write_bills(tmp_path / name)] for name in ("first", "again"))
    assert first == again
