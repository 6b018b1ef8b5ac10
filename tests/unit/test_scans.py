"""What scanners and linter are told to ignore has a reason beside it."""

import re

from tests.support.harness import PROJECT

FIRST_PARTY = [path for name in ("functions", "shared", "ops", "local") for path in (PROJECT / name).rglob("*.py")]


def test_no_finding_is_hidden_by_a_mark_in_the_file() -> None:
    """Each scanner knows marks of its own that need no reason; what is accepted is in tests/scans/*.yaml instead."""
    marks = re.compile(r"nosec|checkov:skip|skip-check|pragma: allowlist|cfn_nag|bridgecrew:skip")
    files = [*FIRST_PARTY, *PROJECT.glob("*.yaml"), *(PROJECT / ".github").rglob("*.yml")]
    assert [path for path in files if marks.search(path.read_text())] == []


def test_every_ignored_rule_of_the_linter_has_a_reason() -> None:
    """`# noqa: S310` alone says nothing: after it, or in the line above, a comment says why."""
    silent = []
    for path in FIRST_PARTY:
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            mark = re.search(r"# noqa(: [A-Z0-9, ]+)?(?P<reason>.*)", line)
            above = lines[number - 1].strip() if number else ""
            if mark and not re.search(r"[a-z]{3}", mark["reason"]) and not above.startswith("#"):
                silent.append(f"{path.relative_to(PROJECT)}:{number + 1}")
    assert silent == []
