"""`sam build` and `sam deploy` of the real template: nothing of the AWS side is written by hand."""

import hashlib
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from local.aws_account import forget_aws_account
from local.emulator import CREDENTIALS, Emulator
from local.processes import StartupError, running, tail
from local.work_dir import one_at_a_time

STACK_NAME = "onecharge-local"
ARTIFACTS_BUCKET = "onecharge-local-artifacts"
_DISK_FULL_BYTES = 1024**2
"""With less, not even the log is complete."""
_WHAT_TO_DO = {
    "No space left on device": "free some space, and run this again",
    # layers/build/build.py says this.
    "pip failed": "it needs the package index; run this again when it is reachable",
}
"""For a sentence in the log of a failed `sam build`, what to do."""


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
        with one_at_a_time(shared):
            content, built = self._content(), shared / "built"
            if not built.exists() or built.read_text() != content:
                built.unlink(missing_ok=True)
                self._build(shared)
                built.write_text(content)
            shutil.rmtree(self.build_dir, ignore_errors=True)
            shutil.copytree(shared / "build", self.build_dir, symlinks=True, copy_function=_link_or_copy)
        return self.build_dir / "template.yaml"

    def _build(self, shared: Path) -> None:
        # Files are linked into the copies: they have to be new ones, never the same ones written anew.
        shutil.rmtree(shared / "build", ignore_errors=True)
        self._run(
            "build",
            [
                *("--template-file", str(self.project / "template.yaml")),
                *("--build-dir", str(shared / "build")),
                # SAM looks for changes in what is built, not in what builds it.
                *("--cached", "--cache-dir", str(shared / "cache" / digest(self.project, "layers/build"))),
            ],
            {
                "Architecture": self.architecture_here(),
                "JwtIssuer": "https://given.at.deployment",
                "JwtAudience": "given-at-deployment",
            },
            cwd=shared,
        )

    def _content(self) -> str:
        """Names the content of all that is built and deployed."""
        return digest(self.project, "template.yaml", "monitoring.yaml", "functions", "shared", "layers")

    def deploy(self, emulator: Emulator, parameters: Mapping[str, str]) -> None:
        """Deploy what was built to the emulator. Raises StartupError."""
        emulator.client("s3").create_bucket(Bucket=ARTIFACTS_BUCKET)
        own = {"Architecture": self.architecture_here(), "Profile": "local"}
        given = {**own, **parameters}
        without_expressions(self.build_dir)
        # A new file: the built one is linked to those of other runs.
        template = self.build_dir / "deployed.yaml"
        built = (self.build_dir / "template.yaml").read_text()
        template.write_text(with_defaults(built, given))
        (self.build_dir / "invoke.yaml").write_text(for_sam_local(with_defaults(built, given)))
        self._run(
            "deploy",
            ["--template-file", str(template)],
            given,
            cwd=self.project,
            env={"AWS_ENDPOINT_URL": emulator.endpoint_url, **CREDENTIALS},
        )

    def _run(
        self,
        command: str,
        options: Sequence[str],
        parameters: Mapping[str, str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        log = self.work_dir / f"sam-{command}.log"
        overrides = [f"{name}={value}" for name, value in parameters.items()]
        config = ["--config-file", str(self.project / "samconfig.toml"), "--config-env", "local"]
        words = [str(self.program), command, *config, *options, "--parameter-overrides", *overrides]
        with running(words, cwd=cwd, env={**self._environment(), **(env or {})}, log=log) as sam:
            code = sam.wait()
        if code:
            raise StartupError(f"{tail(log)}\n{_why_it_failed(command, log)}")

    def _environment(self) -> dict[str, str]:
        # SAM leaves folders behind; the emulator's scratch folder is emptied when the run ends.
        scratch = self.work_dir / "tmp"
        scratch.mkdir(exist_ok=True)
        environment = dict(os.environ)
        forget_aws_account(environment)
        return {
            **environment,
            # `sam build` takes the python3.13 that it finds first, which has to be one of ours.
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "SAM_CLI_TELEMETRY": "0",
            "SAM_CLI_POLL_DELAY": "0.3",  # Seconds; 5 by default, twice for each deployment.
            "TMPDIR": str(scratch),
            "AWS_DEFAULT_REGION": CREDENTIALS["AWS_DEFAULT_REGION"],
            "AWS_MAX_ATTEMPTS": "1",
        }


def digest(project: Path, *names: str) -> str:
    """Names the content of these files and folders of the project."""
    content = hashlib.sha256()
    for top in (project / name for name in names):
        for path in sorted(top.rglob("*") if top.is_dir() else [top]):
            if path.is_file() and "__pycache__" not in path.parts:
                content.update(f"{path.relative_to(project)}\0".encode())
                content.update(path.read_bytes())
    return content.hexdigest()[:16]


def with_defaults(built: str, given: Mapping[str, str]) -> str:
    """A shim: the given values become the defaults, which are all that `sam local invoke` sees of parameters, and SAM's
    transform in the emulator.

    Args:
        built: a template as `sam build` writes it, without YAML's short forms of CloudFormation's functions.
    """
    template = yaml.safe_load(built)
    for name, value in given.items():
        template["Parameters"][name]["Default"] = value
    return yaml.safe_dump(template, sort_keys=False)


def for_sam_local(built: str) -> str:
    """Declares what env.json sets: `sam local invoke` sets no other variables, and else takes the caller's account."""
    template = yaml.safe_load(built)
    variables = ("AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", *CREDENTIALS)
    template["Globals"]["Function"]["Environment"]["Variables"].update(dict.fromkeys(variables, "set by env.json"))
    return yaml.safe_dump(template, sort_keys=False)


def without_expressions(build_dir: Path) -> None:
    """A shim for another gap: the emulator's CloudFormation knows no alarm on an expression."""
    path = build_dir / "Monitoring/template.yaml"
    template = yaml.safe_load(path.read_text())
    resources = template["Resources"]
    template["Resources"] = {name: each for name, each in resources.items() if "Metrics" not in each["Properties"]}
    path.unlink()  # The built file may be linked into several runs: it is written as a new one.
    path.write_text(yaml.safe_dump(template, sort_keys=False))


def _why_it_failed(command: str, log: Path) -> str:
    """One line that says what to do; the log's last lines are above it."""
    failed = f"`sam {command}` failed, as its log above says ({log})"
    text = log.read_text(errors="replace")
    if shutil.disk_usage(log.parent).free < _DISK_FULL_BYTES:
        return f"{failed}: the disk is full; free some space, and run this again"
    advice = next((advice for sentence, advice in _WHAT_TO_DO.items() if sentence in text), "")
    return f"{failed}: {advice}" if advice else failed


def _link_or_copy(source: str, target: str) -> None:
    """A hard link costs no time and no space; it cannot lead to another file system."""
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copy2(source, target)
