"""docs/threat-model.md: every threat says what holds it, and every test that it names exists."""

import re

import pytest

from tests.support.harness import PROJECT

THREATS = PROJECT / "docs/threat-model.md"
ACCEPTED = sorted((PROJECT / "tests/scans").glob("*.yaml"))
TESTS = {
    name
    for path in (PROJECT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("document", [THREATS, PROJECT / "SECURITY.md", *ACCEPTED], ids=lambda path: path.name)
def test_every_test_that_is_named_exists(document: str) -> None:
    """One that was renamed or deleted shows nothing."""
    path = PROJECT / document
    if not path.exists():
        pytest.skip(f"{path.name} is not part of this project")
    assert set(re.findall(r"\btest_\w+", path.read_text())) - TESTS == set()


def threats() -> list[list[str]]:
    """The rows of the tables of threats: kind, threat, what holds it, shown by."""
    rows = [re.sub(r"<!--.*-->", "", line).strip().strip("|").split(" | ") for line in THREATS.read_text().splitlines()]
    return [[cell.strip() for cell in row] for row in rows if len(row[0].strip()) == 1]


def test_every_threat_names_its_test_or_is_accepted() -> None:
    """What is neither shown nor accepted is a wish."""
    assert threats()
    for kind, threat, held, shown in threats():
        assert kind in "STRIDE", threat
        assert held
        assert "`test_" in shown or shown == "accepted, below", threat
