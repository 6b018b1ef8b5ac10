"""Each scanner finds what it is there for: in a small project that has one defect of each kind."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.scans.scanners import ScannerFailed, Scanners
from tests.support.harness import PROJECT

ENVIRONMENTS = PROJECT / ".venv/opt"

TEMPLATE = """\
AWSTemplateFormatVersion: "2010-09-09"
Transform: AWS::Serverless-2016-10-31
Resources:
  OpenTopic:
    Type: AWS::SNS::Topic
  Queue:
    Type: AWS::SQS::Queue
    Properties: { VisibilityTimeout: 99999999 }
"""

WORKFLOW = """\
on: pull_request
permissions: write-all
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - run: echo "${{ github.event.pull_request.title }}"
"""

LIVE_KEY = "sk_" + "live_" + "4eC39HqLyjWDarjtT1zdp7dc"
"""In two parts, so that the scan of this file does not find it."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git checkout with one defect of each kind."""
    (tmp_path / "template.yaml").write_text(TEMPLATE)
    (tmp_path / ".github/workflows").mkdir(parents=True)
    (tmp_path / ".github/workflows/check.yml").write_text(WORKFLOW)
    (tmp_path / "functions/f").mkdir(parents=True)
    (tmp_path / "functions/f/app.py").write_text("import pickle\n\nread = pickle.loads(open('x', 'rb').read())\n")
    (tmp_path / "notes.txt").write_text(f"key: {LIVE_KEY}\n")
    (tmp_path / "layers/requirements").mkdir(parents=True)
    (tmp_path / "layers/requirements/dev.txt").write_text(f"urllib3==1.24.1 --hash=sha256:{'0' * 64}\n")
    (tmp_path / "layers/libraries").mkdir()
    (tmp_path / "layers/libraries/requirements.txt").write_text(f"idna==3.10 --hash=sha256:{'0' * 64}\n")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    return tmp_path


def test_checkov_finds_an_open_topic_and_a_workflow_that_anyone_can_write_with(project: Path) -> None:
    """In templates and in workflows."""
    scan = Scanners(project, ENVIRONMENTS).checkov()
    found = {(each.rule, each.where.split(" ")[0]) for each in scan.findings}
    assert {("CKV_AWS_26", "template.yaml"), ("CKV2_GHA_1", ".github/workflows/check.yml")} <= found


def test_checkov_that_judges_nothing_fails(project: Path) -> None:
    """A template that it cannot read is no template without findings."""
    (project / "template.yaml").write_text("Resources:\nResources: [\n")
    with pytest.raises(ScannerFailed):
        Scanners(project, ENVIRONMENTS).checkov()


def test_a_key_in_any_file_is_found(project: Path) -> None:
    """Committed or about to be; and what git ignores is not looked at."""
    (project / ".gitignore").write_text("ignored\n")
    shutil.copy(project / "notes.txt", project / "ignored")
    findings = Scanners(project, ENVIRONMENTS).detect_secrets().findings
    assert [(each.rule, each.where) for each in findings] == [("Stripe Access Key", "notes.txt")]


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
def osv(request: pytest.FixtureRequest) -> Iterator[str]:
    handler = type("OsvOfThisTest", (Osv,), {"known": frozenset(request.param)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("osv", [{"jinja2==2.4.1", "urllib3==1.24.1"}], indirect=True)
def test_a_vulnerable_package_is_found(project: Path, osv: str) -> None:
    """In any of the pinned files."""
    scan = Scanners(project, ENVIRONMENTS, osv).pip_audit()
    assert [(each.rule, each.where) for each in scan.findings] == [("PYSEC-urllib3", "urllib3 1.24.1")]
    assert scan.looked_at == 2


@pytest.mark.parametrize("osv", [{"urllib3==1.24.1"}], indirect=True)
def test_a_service_that_does_not_know_a_known_vulnerability_is_not_believed(project: Path, osv: str) -> None:
    """A package index that serves no vulnerabilities answers that there are none: that is no audit."""
    scan = Scanners(project, ENVIRONMENTS, osv).pip_audit()
    assert scan.findings == []
    assert "no service was reached" in scan.skipped
