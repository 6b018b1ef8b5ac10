"""The scanners: each is a program in an environment of its own, and returns what it finds.

    cfn-lint         the templates: every rule, the informational and experimental ones too
    checkov          the templates and the workflows: what is open, unencrypted or unbounded
    bandit           the code that is deployed or that operators run: insecure calls
    detect-secrets   every file that git has or would add: keys and tokens
    pip-audit        every pinned requirements file: known vulnerabilities

A scanner that finds nothing because it looked at nothing would be worse than none: `looked_at` says how much it was,
and pip-audit has to know a vulnerability that is known since 2014 before it is believed.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.scans.findings import Finding
from tests.support.harness import read_template

VULNERABLE_RELEASE = "jinja2==2.4.1"
"""Its vulnerabilities are known since 2014 (CVE-2014-1402): a service that knows none of them is not one."""

SECRETS_PLUGINS_OFF = ("Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector", "IPPublicDetector")
"""They find ids, digests and every variable that is named after a secret. What is left knows the format of the keys of
AWS, Stripe, GitHub and thirty others, private keys, JSON Web Tokens and passwords in URLs."""

FIRST_PARTY = ("functions", "shared", "ops", "local", "stripe_standin")
"""What is deployed, what operators run, and what runs on the machine of whoever tries it."""


class ScannerFailed(Exception):
    """The scanner did not run to its end; says what it wrote."""


@dataclass(frozen=True)
class Scan:
    """The result of one scanner."""

    findings: list[Finding] = field(default_factory=list)
    looked_at: int = 0
    """How many files, checks or packages it has judged."""
    skipped: str = ""
    """Why it could not run here; empty if it ran."""
    failed: str = ""
    """What went wrong; empty if it ran to its end."""


@dataclass(frozen=True)
class Scanners:
    """All scanners over one checkout.

    Args:
        project: the checkout.
        environments: the folder of the environments that the scanners are installed in.
        osv_url: the vulnerability service to ask, instead of the public ones; of OSV's API.
    """

    project: Path
    environments: Path
    osv_url: str | None = None

    @property
    def all(self) -> Mapping[str, Callable[[], Scan]]:
        """Each by its name, as in suppressions.toml."""
        return {
            "cfn-lint": self.cfn_lint,
            "checkov": self.checkov,
            "bandit": self.bandit,
            "detect-secrets": self.detect_secrets,
            "pip-audit": self.pip_audit,
        }

    @property
    def templates(self) -> list[Path]:
        """Every CloudFormation template."""
        found = sorted([*self.project.glob("*.yaml"), *self.project.glob("ops/*.yaml")])
        return [path for path in found if "\nResources:" in path.read_text()]

    @property
    def requirements(self) -> list[Path]:
        """Every pinned requirements file."""
        return sorted(
            [*self.project.glob("layers/requirements/*.txt"), *self.project.glob("layers/*/requirements.txt")]
        )

    def cfn_lint(self) -> Scan:
        """Errors, warnings and information, in the region of samconfig.toml."""
        names = [str(path.relative_to(self.project)) for path in self.templates]
        # I1022, Sub instead of Join, is taste: a name of two parts is joined so that a project without FIFO queues can
        # leave out the second.
        options = [
            "--include-checks",
            "I",
            "--include-experimental",
            "--ignore-checks",
            "I1022",
            "--regions",
            "us-east-1",
            "--format",
            "json",
        ]
        # 2, 4 and 8 and their sums: there are errors, warnings, informational findings.
        report = self._json("sam", "cfn-lint", *options, "--template", *names, codes=range(16))
        findings = [
            Finding("cfn-lint", each["Rule"]["Id"], f"{each['Filename']} {_resource_of(each)}".strip(), each["Message"])
            for each in report
        ]
        return Scan(findings, len(names))

    def checkov(self) -> Scan:
        """Every rule that it ships with, without the descriptions that it would download."""
        with tempfile.TemporaryDirectory() as folder:
            # checkov reads no YAML merge keys; `sam build` resolves them as well.
            for path in self.templates:
                copy = Path(folder) / path.relative_to(self.project)
                copy.parent.mkdir(exist_ok=True)
                copy.write_text(json.dumps(read_long_form(path)))
            scans = [self._checkov("cloudformation", ["--directory", folder])]
        if (self.project / ".github/workflows").is_dir():
            scans.append(self._checkov("github_actions", ["--directory", ".github"], folder=".github"))
        findings = [finding for scan in scans for finding in scan.findings]
        return Scan(findings, sum(scan.looked_at for scan in scans))

    def _checkov(self, framework: str, target: Sequence[str], *, folder: str = "") -> Scan:
        options = ["--framework", framework, "--skip-download", "--compact", "--output", "json"]
        report = self._json("checks", "checkov", *target, *options, codes=(0, 1))
        if report["results"]["parsing_errors"]:
            raise ScannerFailed(f"checkov cannot read {report['results']['parsing_errors']}")
        if not report["summary"]["passed"] + report["summary"]["failed"]:
            raise ScannerFailed(f"checkov found nothing of {framework} to judge")
        findings = [
            Finding(
                "checkov",
                each["check_id"],
                f"{folder}{each['file_path']} {each['resource'].rpartition('.')[2]}".lstrip("/"),
                each["check_name"],
            )
            for each in report["results"]["failed_checks"]
        ]
        return Scan(findings, report["summary"]["passed"] + report["summary"]["failed"])

    def bandit(self) -> Scan:
        """Every rule at every severity."""
        folders = [name for name in FIRST_PARTY if (self.project / name).is_dir()]
        command = (
            "bandit",
            "--quiet",
            "--recursive",
            "--format",
            "json",
            "--exclude",
            "stripe_standin/tests,stripe_standin/build",
        )
        report = self._json("checks", *command, *folders, codes=(0, 1))
        if report["errors"]:
            raise ScannerFailed(f"bandit cannot read {report['errors']}")
        findings = [
            Finding("bandit", each["test_id"], each["filename"], f"line {each['line_number']}: {each['issue_text']}")
            for each in report["results"]
        ]
        return Scan(findings, len(report["metrics"]) - 1)  # The last one is their sum.

    def detect_secrets(self) -> Scan:
        """Every file that git has, or would add with `git add --all`."""
        if not (self.project / ".git").exists():
            return Scan(skipped="this is no git checkout, so nothing says which files are its own")
        listed = self._run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], codes=(0,))
        names = [name for name in listed.split("\0") if name and (self.project / name).is_file()]
        options = [option for plugin in SECRETS_PLUGINS_OFF for option in ("--disable-plugin", plugin)]
        report = self._json("checks", "detect-secrets", "scan", "--no-verify", *options, *names, codes=(0,))
        findings = [
            Finding("detect-secrets", each["type"], name, f"line {each['line_number']}")
            for name, found in report["results"].items()
            for each in found
        ]
        return Scan(findings, len(names))

    def pip_audit(self) -> Scan:
        """Every package of every file, from the first service that knows what it should."""
        files = [option for path in self.requirements for option in ("--requirement", str(path))]
        for service in self._services:
            if not self._knows_vulnerabilities(service):
                continue
            packages = self._audited(service, *files)
            findings = [finding for package in packages for finding in _vulnerabilities(package)]
            return Scan(findings, len({(package["name"], package.get("version")) for package in packages}))
        return Scan(skipped=f"no service was reached that knows a vulnerability of {VULNERABLE_RELEASE}")

    @property
    def _services(self) -> list[list[str]]:
        if self.osv_url:
            return [["--vulnerability-service", "osv", "--osv-url", self.osv_url]]
        return [["--vulnerability-service", name] for name in ("pypi", "osv")]

    def _knows_vulnerabilities(self, service: Sequence[str]) -> bool:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as known:
            known.write(VULNERABLE_RELEASE)
            known.flush()
            try:
                [package] = self._audited(service, "--no-deps", "--requirement", known.name)
            except ScannerFailed:
                return False
        return bool(package.get("vulns"))

    def _audited(self, service: Sequence[str], *options: str) -> list[Any]:
        # Nothing is installed or resolved: what is pinned is what is asked about.
        shared = ["--disable-pip", "--progress-spinner", "off", "--format", "json", *service]
        packages: list[Any] = self._json("checks", "pip-audit", *shared, *options, codes=(0, 1))["dependencies"]
        return packages

    def _json(self, environment: str, program: str, *arguments: str, codes: Sequence[int]) -> Any:
        written = self._run([str(self.environments / environment / "bin" / program), *arguments], codes=codes)
        try:
            return json.loads(written)
        except ValueError:
            raise ScannerFailed(f"{program} wrote no JSON: {written[-500:]}") from None

    def _run(self, command: Sequence[str], *, codes: Sequence[int]) -> str:
        errors_only = {"LOG_LEVEL": "ERROR", "NO_COLOR": "1", "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            command, cwd=self.project, env=os.environ | errors_only, capture_output=True, text=True, check=False
        )
        if done.returncode not in codes:
            raise ScannerFailed(f"{Path(command[0]).name} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout


def read_long_form(path: Path) -> Any:
    """A CloudFormation template without aliases, merge keys and short forms: `!Ref x` is `{"Ref": "x"}`.

    Raises ScannerFailed if it is no YAML.
    """

    def long_form(name: str, given: Any) -> dict[str, Any]:
        if name == "GetAtt" and isinstance(given, str):
            given = given.split(".", 1)
        return {name if name in ("Ref", "Condition") else f"Fn::{name}": given}

    try:
        return read_template(path, long_form)
    except yaml.YAMLError as error:
        raise ScannerFailed(f"{path.name} cannot be read: {error}") from None


def _resource_of(match: Mapping[str, Any]) -> str:
    """The logical id that a finding of cfn-lint is about; empty if it is about the whole template."""
    path = (match.get("Location") or {}).get("Path") or []
    return str(path[1]) if len(path) > 1 else ""


def _vulnerabilities(package: Mapping[str, Any]) -> Iterator[Finding]:
    release = f"{package['name']} {package.get('version', '')}".strip()
    if "skip_reason" in package:
        yield Finding("pip-audit", "not-audited", release, str(package["skip_reason"]))
    for each in package.get("vulns", ()):
        fixed = ", ".join(each["fix_versions"]) or "no release"
        yield Finding("pip-audit", each["id"], release, f"fixed in {fixed}: {each['description'][:200]}")
