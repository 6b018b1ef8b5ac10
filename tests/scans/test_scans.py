"""What a scanner accepts is in its file beside this one, with the reason."""

import re

from tests.support.harness import PROJECT


def test_no_finding_is_hidden_by_a_mark_in_the_file() -> None:
    """Each scanner knows marks of its own that need no reason."""
    marks = re.compile(r"nosec|checkov:skip|skip-check|pragma: allowlist|cfn_nag|bridgecrew:skip")
    python = [path for name in ("functions", "shared", "ops", "local") for path in (PROJECT / name).rglob("*.py")]
    files = [*python, *PROJECT.glob("*.yaml"), *(PROJECT / ".github").rglob("*.yml")]
    assert [path for path in files if marks.search(path.read_text())] == []
