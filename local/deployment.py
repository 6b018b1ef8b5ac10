"""`sam build` and `sam deploy` of the real template: nothing of the AWS side is written by hand."""

import hashlib
import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from local.aws_account import forget_aws_account
from local.emulator import CREDENTIALS, Emulator
from local.processes import StartupError, running, tail
from local.work_dir import sole_user_of

STACK_NAME = "onecharge-local"
ARTIFACTS_BUCKET = "onecharge-local-artifacts"


@dataclass(frozen=True)
class Sam:
    """The SAM CLI on one copy of the project."""

    program: Path
    python: Path
    project: Path
    work_dir: Path

    @property
    def build_dir(self) -> Path:
        return self.work_dir / "build"

    @staticmethod
    def architecture_here() -> str:
        """What this machine is: native wheels built for another would not import here."""
        return "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"

    def build(self) -> Path:
        """Build every function and layer; returns the built template.

        All runs of a project share one build with one cache, under a lock: `sam build` throws away the cache of every
        build but its own, and without it the package index is needed again. Each run gets a copy of the result.

        Without a change since the last build, that one is taken.

        Raises:
            StartupError: `sam build` failed.
        """
        shared = self.project / ".local" / "sam"
        with sole_user_of(shared, waits=True):
            content = digest(self.project, "template.yaml", "monitoring.yaml", "functions", "shared", "layers")
            built = shared / "built"
            if not built.exists() or built.read_text() != content:
                built.unlink(missing_ok=True)
                # Files are linked into the copies: they have to be new ones, never the same ones written anew.
                shutil.rmtree(shared / "build", ignore_errors=True)
                # SAM looks for changes in what is built, not in what builds it.
                cache = shared / "cache" / digest(self.project, "layers/build")
                options = ("--build-dir", str(shared / "build"), "--cached", "--cache-dir", str(cache))
                given = {"JwtIssuer": "https://given.at.deployment", "JwtAudience": "given-at-deployment"}
                self._run("build", self.project / "template.yaml", given, *options, cwd=shared)
                built.write_text(content)
            shutil.rmtree(self.build_dir, ignore_errors=True)
            shutil.copytree(shared / "build", self.build_dir, symlinks=True, copy_function=_link_or_copy)
        return self.build_dir / "template.yaml"

    def deploy(self, emulator: Emulator, parameters: Mapping[str, str]) -> None:
        """Deploy what was built to the emulator. Raises StartupError."""
        emulator.client("s3").create_bucket(Bucket=ARTIFACTS_BUCKET)
        given = {"Profile": "local", **parameters}
        write_templates(self.build_dir, {"Architecture": self.architecture_here(), **given})
        aws = {"AWS_ENDPOINT_URL": emulator.endpoint_url, **CREDENTIALS}
        self._run("deploy", self.build_dir / "deployed.yaml", given, cwd=self.project, env=aws)

    def _run(
        self,
        command: str,
        template: Path,
        parameters: Mapping[str, str],
        *options: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        log, scratch = self.work_dir / f"sam-{command}.log", self.work_dir / "tmp"
        # SAM leaves folders behind; the emulator's scratch folder is emptied when the run ends.
        scratch.mkdir(exist_ok=True)
        given = {"Architecture": self.architecture_here(), **parameters}
        words = [
            *(str(self.program), command, "--template-file", str(template), *options),
            *("--config-file", str(self.project / "samconfig.toml"), "--config-env", "local"),
            *("--parameter-overrides", *(f"{name}={value}" for name, value in given.items())),
        ]
        environment = dict(os.environ)
        forget_aws_account(environment)
        environment |= {
            # `sam build` takes the python3.13 that it finds first, which has to be one of ours.
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "SAM_CLI_TELEMETRY": "0",
            "SAM_CLI_POLL_DELAY": "0.3",  # Seconds; 5 by default, twice for each deployment.
            "TMPDIR": str(scratch),
            "AWS_DEFAULT_REGION": CREDENTIALS["AWS_DEFAULT_REGION"],
            "AWS_MAX_ATTEMPTS": "1",
            **(env or {}),
        }
        with running(words, cwd=cwd, env=environment, log=log) as sam:
            code = sam.wait()
        if code:
            raise StartupError(f"{tail(log)}\n`sam {command}` failed, as its log above says ({log})")


def digest(project: Path, *names: str) -> str:
    """Names the content of these files and folders of the project."""
    content = hashlib.sha256()
    for top in (project / name for name in names):
        for path in sorted(top.rglob("*") if top.is_dir() else [top]):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(f"{path.relative_to(project)}\0".encode())
                content.update(path.read_bytes())
    return content.hexdigest()[:16]


def write_templates(build_dir: Path, given: Mapping[str, str]) -> None:
    """Write deployed.yaml and invoke.yaml, the built template for the emulator and for `sam local invoke`.

    Two shims. The given values become the defaults, which are all that SAM's transform in the emulator and
    `sam local invoke` see of parameters. And the emulator's CloudFormation knows no alarm on an expression.
    """
    template = yaml.safe_load((build_dir / "template.yaml").read_text())
    for name, value in given.items():
        template["Parameters"][name]["Default"] = value
    # New files each: a built one is linked to those of other runs.
    _write(build_dir / "deployed.yaml", template)
    # `sam local invoke` sets no other variables than the template declares, and else takes the caller's account.
    declared = dict.fromkeys(("AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", *CREDENTIALS), "set by env.json")
    template["Globals"]["Function"]["Environment"]["Variables"].update(declared)
    _write(build_dir / "invoke.yaml", template)
    monitoring = build_dir / "Monitoring/template.yaml"
    alarms = yaml.safe_load(monitoring.read_text())
    for name in [name for name, each in alarms["Resources"].items() if "Metrics" in each["Properties"]]:
        del alarms["Resources"][name]
    _write(monitoring, alarms)


def _write(path: Path, template: Any) -> None:
    path.unlink(missing_ok=True)
    path.write_text(yaml.safe_dump(template, sort_keys=False))


def _link_or_copy(source: str, target: str) -> None:
    """A hard link costs no time and no space; it cannot lead to another file system."""
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copy2(source, target)
