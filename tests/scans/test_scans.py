"""Each scanner fails for what it is there for: in a small project that has one defect of each kind."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.scans.__main__ import TEMPLATES, bandit, checkov, detect_secrets, pip_audit, zizmor

TEMPLATE = """\
AWSTemplateFormatVersion: "2010-09-09"
Resources:
  OpenBucket:
    Type: AWS::S3::Bucket
"""
WORKFLOW = """\
on: pull_request
permissions: write-all
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - run: echo ${{ github.head_ref }}
"""
LIVE_KEY = "sk_" + "live_" + "4eC39HqLyjWDarjtT1zdp7dc"
"""In two parts, so that the scan of this file does not find it."""
FILES = {
    **dict.fromkeys(TEMPLATES, TEMPLATE),
    ".github/workflows/check.yml": WORKFLOW,
    "functions/f/app.py": "import pickle\n\nread = pickle.loads(open('x', 'rb').read())\n",
    "notes.txt": f"key: {LIVE_KEY}\n",
    ".gitignore": "ignored.txt\n",
    "ignored.txt": f"key: {LIVE_KEY}\n",
    "layers/requirements/dev.txt": "urllib3==1.24.1\nidna==3.10\n",
    "layers/libraries/requirements.txt": "idna==3.11\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git checkout with one defect of each kind."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def test_checkov_finds_an_open_bucket_and_a_workflow_that_anyone_can_write_with(project: Path) -> None:
    """In templates and in workflows."""
    done = checkov(project)
    assert (done.returncode, "CKV_AWS_53" in done.stdout, "CKV2_GHA_1" in done.stdout) == (1, True, True)


def test_zizmor_finds_an_action_and_a_command_that_others_can_change(project: Path) -> None:
    """A tag can be moved to other code, and GitHub writes the name of a branch into the command."""
    done = zizmor(project)
    assert done.returncode > 10  # It exits with 11 to 14 for findings.
    assert "unpinned-uses" in done.stdout
    assert "template-injection" in done.stdout


def test_bandit_finds_an_insecure_call(project: Path) -> None:
    """In what is deployed."""
    done = bandit(project)
    assert (done.returncode, "B301" in done.stdout) == (1, True)


def test_a_key_in_any_file_is_found(project: Path) -> None:
    """Committed or about to be; and what git ignores is not looked at."""
    done = detect_secrets(project)
    assert (done.returncode, done.stdout.count("Secret Type: "), "notes.txt" in done.stdout) == (1, 1, True)
    assert "ignored.txt" not in done.stdout


class Osv(BaseHTTPRequestHandler):
    """A vulnerability service with OSV's API (POST /v1/query), which knows the releases that it was given."""

    known: frozenset[str]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, version = asked["package"]["name"], asked["version"]
        affected = [{"package": {"name": name, "ecosystem": "PyPI"}}]
        vulnerability = {"id": f"PYSEC-{name}", "summary": "a defect", "affected": affected}
        body = json.dumps({"vulns": [vulnerability]} if f"{name}=={version}" in self.known else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """The options that make pip-audit ask this service."""
    handler = type("OsvOfThisTest", (Osv,), {"known": frozenset(request.param)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield "--vulnerability-service", "osv", "--osv-url", f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("service", [{"jinja2==2.4.1", "urllib3==1.24.1"}], indirect=True)
def test_a_vulnerable_package_is_found(project: Path, service: tuple[str, ...]) -> None:
    """In any of the pinned files, of which two may pin different versions."""
    done = pip_audit(project, *service)
    assert (done.returncode, "PYSEC-urllib3" in done.stdout, "idna" in done.stdout) == (1, True, False)


@pytest.mark.parametrize("service", [{"urllib3==1.24.1"}], indirect=True)
def test_a_service_that_does_not_know_a_known_vulnerability_is_not_believed(
    project: Path, service: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package index that serves no vulnerabilities answers that there are none: that is no audit."""
    monkeypatch.delenv("SCANNERS_MUST_RUN", raising=False)
    assert pip_audit(project, *service).returncode == 0
    monkeypatch.setenv("SCANNERS_MUST_RUN", "1")
    assert pip_audit(project, *service).returncode == 1
