"""What scanners are told to ignore is in tests/scans/*.yaml, with its reason."""

import re

from tests.support.harness import PROJECT

FIRST_PARTY = [path for name in ("functions", "shared", "ops", "local") for path in (PROJECT / name).rglob("*.py")]


def test_no_finding_is_hidden_by_a_mark_in_the_file() -> None:
    """Each scanner knows marks of its own that need no reason; what is accepted is in tests/scans/*.yaml instead."""
    marks = re.compile(r"nosec|checkov:skip|skip-check|pragma: allowlist|cfn_nag|bridgecrew:skip")
    files = [*FIRST_PARTY, *PROJECT.glob("*.yaml"), *(PROJECT / ".github").rglob("*.yml")]
    assert [path for path in files if marks.search(path.read_text())] == []
