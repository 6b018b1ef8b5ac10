"""`make scan`: runs each scanner; ends with 1 if one finds what its own file, beside this one, does not accept."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.harness import PROJECT, read_template

HERE, ENVIRONMENTS = Path(__file__).parent, PROJECT / ".venv/opt"
TEMPLATES = ("template.yaml", "monitoring.yaml", "docs/guides/react/template.yaml")
# They find ids, digests and names of secrets. detect-secrets' other plugins know the formats of thirty kinds of keys.
PLUGINS_OFF = ("Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector", "IPPublicDetector")


def run(project: Path, program: str, *options: object) -> CompletedProcess[str]:
    command = [str(ENVIRONMENTS / program), *map(str, options)]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)


def cfn_lint(project: Path) -> CompletedProcess[str]:
    options = ("--config-file", HERE / "cfnlint.yaml", "--merge-configs")
    return run(project, "sam/bin/cfn-lint", *options, "--template", *TEMPLATES)


def in_full(name: str, given: Any) -> dict[str, Any]:
    return {name if name in ("Ref", "Condition") else f"Fn::{name}": given}


def checkov(project: Path) -> CompletedProcess[str]:
    """Reads copies of the templates without merge keys, which it does not know; `sam build` resolves them, too."""
    with TemporaryDirectory() as folder:
        shutil.copytree(project / ".github", Path(folder, ".github"))
        for name in TEMPLATES:
            copy = Path(folder, name).with_suffix(".json")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(json.dumps(read_template(project / name, in_full)))
        return run(Path(folder), "checks/bin/checkov", "--config-file", HERE / "checkov.yaml", "--directory", ".")


def zizmor(project: Path) -> CompletedProcess[str]:
    return run(project, "checks/bin/zizmor", "--offline", "--quiet", "--min-severity", "medium", ".github/workflows")


def bandit(project: Path) -> CompletedProcess[str]:
    options = ("--ignore-nosec", "--quiet", "--recursive", "--configfile", HERE / "bandit.yaml")
    return run(project, "checks/bin/bandit", *options, "functions", "shared", "ops")


def detect_secrets(project: Path) -> CompletedProcess[str]:
    """Reads every file that git has, or would add with `git add --all`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=project, stdout=PIPE, text=True, check=True).stdout.splitlines()
    options = [word for plugin in PLUGINS_OFF for word in ("--disable-plugin", plugin)]
    names = [name for name in listed if (project / name).is_file()]
    return run(project, "checks/bin/detect-secrets-hook", "--no-verify", *options, *names)


def pip_audit(project: Path, *service: str) -> CompletedProcess[str]:
    """Asks about every pinned package, file by file: two may pin different versions. Nothing is installed."""
    options = ("--strict", "--disable-pip", "--no-deps", "--progress-spinner", "off", *service, "--requirement")
    # A package index without vulnerabilities answers that there are none: it is asked first about one of 2014.
    if "jinja2" not in run(project, "checks/bin/pip-audit", *options, HERE / "known-vulnerable.txt").stdout:
        return CompletedProcess(
            "", int("SCANNERS_MUST_RUN" in os.environ), "skipped: no service of vulnerabilities", ""
        )
    files = sorted(project.glob("layers/**/*.txt"))
    found = [done for path in files if (done := run(project, "checks/bin/pip-audit", *options, path)).returncode]
    return CompletedProcess("", len(found), "".join(done.stdout + done.stderr for done in found), "")


if __name__ == "__main__":
    scanners = (cfn_lint, checkov, zizmor, bandit, detect_secrets, pip_audit)
    with ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda scan: scan(PROJECT), scanners))
    for scan, done in zip(scanners, results, strict=True):
        print(f"{scan.__name__}: {done.stdout.strip()}{done.stderr if done.returncode else ''} ({done.returncode})")
    sys.exit(any(done.returncode for done in results))
