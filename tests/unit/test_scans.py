"""Which findings of the scanners are accepted: each with a reason, none by a mark that the reasons do not know of."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scans.__main__ import SUPPRESSIONS, judged, run
from tests.scans.findings import BadSuppression, Finding, Suppression, read_suppressions, stale, to_be_mended
from tests.scans.scanners import FIRST_PARTY, Scan, ScannerFailed, Scanners
from tests.support.harness import PROJECT

REASON = "The rule does not know this kind of queue; a test holds what it wants."
QUEUE = Finding("checkov", "CKV_1", "template.yaml PaymentsQueue", "not encrypted")
TABLE = Finding("checkov", "CKV_1", "template.yaml OrdersTable", "not encrypted")
OF_QUEUES = Suppression("checkov", "CKV_1", "template.yaml *Queue", REASON)


def test_what_is_suppressed_is_accepted_and_the_rest_is_to_be_mended() -> None:
    """By scanner, rule and place: the same rule elsewhere stays a finding."""
    assert to_be_mended([QUEUE, TABLE], [OF_QUEUES]) == [TABLE]
    assert to_be_mended([QUEUE], [Suppression("cfn-lint", "CKV_1", "*", REASON)]) == [QUEUE]
    assert to_be_mended([QUEUE], [Suppression("checkov", "CKV_2", "*", REASON)]) == [QUEUE]


def test_a_suppression_that_nothing_needs_is_wrong() -> None:
    """So that the list does not grow beyond what is accepted today."""
    assert stale([QUEUE], [OF_QUEUES]) == []
    assert stale([TABLE], [OF_QUEUES]) == [OF_QUEUES]
    wrong, _ = judged("checkov", Scan([TABLE], 2), [OF_QUEUES], must_run=False)
    assert wrong == [
        "checkov CKV_1: template.yaml OrdersTable: not encrypted",
        "checkov CKV_1: template.yaml *Queue: stale, suppresses nothing",
    ]


@pytest.mark.parametrize(
    "entry",
    [
        'rule = "R"\nwhere = ["x"]',
        'rule = "R"\nwhere = ["x"]\nreason = "because"',
        f'rule = "R"\nwhere = []\nreason = "{REASON}"',
        f'rule = "R"\nreason = "{REASON}"',
        f'rule = "R"\nwhere = ["x"]\nreason = "{REASON}"\nuntil = "later"',
    ],
)
def test_a_suppression_says_what_it_suppresses_and_why(entry: str) -> None:
    """A word is no reason."""
    with pytest.raises(BadSuppression):
        read_suppressions(f"[[bandit]]\n{entry}")


def test_every_suppression_here_has_a_reason_and_a_scanner() -> None:
    """Nothing of what is deployed is excused by bandit."""
    suppressions = read_suppressions(SUPPRESSIONS.read_text())
    places = [(each.scanner, each.rule, each.where) for each in suppressions]
    assert len(set(places)) == len(places)
    assert {each.scanner for each in suppressions} <= Scanners(PROJECT, Path("nowhere")).all.keys()
    of_code = [each.where for each in suppressions if each.scanner == "bandit"]
    assert [where for where in of_code if where.startswith(("functions/", "shared/", "*"))] == []


def files_of_ours() -> Iterator[Path]:
    """What could hold a mark for a scanner."""
    yield from (path for name in FIRST_PARTY for path in (PROJECT / name).rglob("*.py"))
    yield from PROJECT.glob("*.yaml")
    yield from (PROJECT / ".github").rglob("*.yml")


def test_no_finding_is_hidden_by_a_mark_in_the_file() -> None:
    """Each scanner knows marks of its own that need no reason; all are in suppressions.toml instead."""
    marks = re.compile(r"nosec|checkov:skip|skip-check|pragma: allowlist|cfn_nag|bridgecrew:skip")
    marked = [path for path in files_of_ours() if marks.search(path.read_text())]
    assert marked == []
    # YAML merges are a style, which `sam deploy` resolves: not a finding about what is deployed.
    ignored = re.findall(r"cfn-lint:.*", "".join(path.read_text() for path in PROJECT.glob("*.yaml")))
    assert [each for each in ignored if "ignore_checks: [W1100]" not in each] == []
    configs = (".checkov.yaml", ".checkov.yml", ".bandit", ".cfnlintrc", ".cfnlintrc.yaml", ".secrets.baseline")
    assert [name for name in configs if (PROJECT / name).exists()] == []


def test_every_ignored_rule_of_the_linter_has_a_reason() -> None:
    """`# noqa: S310` alone says nothing: after it, or in the line above, a comment says why."""
    silent = []
    for path in (path for name in FIRST_PARTY for path in (PROJECT / name).rglob("*.py")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            mark = re.search(r"# noqa(: [A-Z0-9, ]+)?(?P<reason>.*)", line)
            above = lines[number - 1].strip() if number else ""
            if mark and not re.search(r"[a-z]{3}", mark["reason"]) and not above.startswith("#"):
                silent.append(f"{path.relative_to(PROJECT)}:{number + 1}")
    assert silent == []


def test_a_scanner_that_fails_or_must_run_and_cannot_is_wrong() -> None:
    """Elsewhere a scanner that cannot run is skipped, with its reason."""

    def fails() -> Scan:
        raise ScannerFailed("it ended with 2")

    assert judged("bandit", run(fails), [], must_run=False)[0] == ["bandit: it ended with 2"]
    skipped = Scan(skipped="no service was reached")
    assert judged("pip-audit", skipped, [], must_run=False) == ([], "skipped: no service was reached")
    assert judged("pip-audit", skipped, [], must_run=True)[0] == [
        "pip-audit: it has to run here, but no service was reached"
    ]


def test_every_pinned_requirements_file_is_audited() -> None:
    """A new environment cannot be forgotten."""
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no git checkout")
    pinned = {name for name in listed.split() if name.endswith(".txt") and "requirements" in name}
    assert {str(path.relative_to(PROJECT)) for path in Scanners(PROJECT, Path("nowhere")).requirements} >= pinned
