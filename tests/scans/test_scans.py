"""Each scanner fails for what it is there for, and what is accepted is in a file beside this one, with its reason."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.scans import __main__ as scans
from tests.scans.__main__ import TEMPLATES, bandit, checkov, detect_secrets, pip_audit, zizmor
from tests.support.harness import PROJECT

LIVE_KEY = "sk_" + "live_" + "4eC39HqLyjWDarjtT1zdp7dc"
"""In two parts, so that the scan of this file does not find it."""
OPEN_BUCKET = 'AWSTemplateFormatVersion: "2010-09-09"\nResources: { OpenBucket: { Type: AWS::S3::Bucket } }\n'
FILES = {
    **dict.fromkeys(TEMPLATES, OPEN_BUCKET),
    ".github/workflows/check.yml": """\
on: pull_request
permissions: write-all
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: echo ${{ github.head_ref }}
""",
    "functions/f/app.py": "import pickle\n\nread = pickle.loads(open('x', 'rb').read())\n",
    "notes.txt": f"key: {LIVE_KEY}\n",
    ".gitignore": "ignored.txt\n",
    "ignored.txt": f"key: {LIVE_KEY}\n",
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scan", "found"),
    [
        (checkov, ["CKV_AWS_53", "CKV2_GHA_1"]),  # An open bucket; a workflow that anyone can write with.
        (zizmor, ["unpinned-uses", "template-injection"]),
        (bandit, ["B301"]),
        (detect_secrets, ["notes.txt"]),  # What git ignores is not looked at.
    ],
)
def test_each_scanner_finds_its_defect(
    tmp_path: Path, scan: Callable[[Path], CompletedProcess[str]], found: list[str]
) -> None:
    """In a git checkout with one of each kind."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    done = scan(tmp_path)
    assert done.returncode
    assert [each for each in found if each not in done.stdout] == []
    assert "ignored.txt" not in done.stdout


@pytest.mark.parametrize(
    ("known", "must_run", "code"),
    [
        ({"known-vulnerable.txt", "dev.txt"}, False, 1),
        ({"known-vulnerable.txt"}, True, 0),
        ({"dev.txt"}, False, 0),
        ({"dev.txt"}, True, 1),
    ],
)
def test_a_vulnerable_package_is_found(
    monkeypatch: pytest.MonkeyPatch, known: set[str], must_run: bool, code: int
) -> None:
    """In any of the pinned files. A service that does not know a vulnerability of 2014 is not believed: a package index
    that serves none answers that there are none."""

    def run(project: Path, program: str, *options: object) -> CompletedProcess[str]:
        name = Path(str(options[-1])).name
        return CompletedProcess("", int(name in known), "jinja2 urllib3" if name in known else "", "")

    monkeypatch.setattr(scans, "run", run)
    monkeypatch.delenv("SCANNERS_MUST_RUN", raising=False)
    if must_run:
        monkeypatch.setenv("SCANNERS_MUST_RUN", "1")
    assert pip_audit(PROJECT).returncode == code


def test_no_finding_is_hidden_by_a_mark_in_the_file() -> None:
    """Each scanner knows marks of its own that need no reason."""
    marks = re.compile(r"nosec|checkov:skip|skip-check|pragma: allowlist|cfn_nag|bridgecrew:skip")
    python = [path for name in ("functions", "shared", "ops", "local") for path in (PROJECT / name).rglob("*.py")]
    files = [*python, *PROJECT.glob("*.yaml"), *(PROJECT / ".github").rglob("*.yml")]
    assert [path for path in files if marks.search(path.read_text())] == []
