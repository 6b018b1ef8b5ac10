"""`sam build` and `sam deploy` of the real template: nothing of the AWS side is written by hand."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local.emulator import CREDENTIALS, Emulator
from local.processes import DidNotStart, tail

STACK_NAME = "onecharge-local"
ARTIFACTS_BUCKET = "onecharge-local-artifacts"
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "AMD64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}


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
        return _ARCHITECTURES[platform.machine()]

    def build(self) -> Path:
        """Build every function and the layer; returns the built template. Raises DidNotStart."""
        self._run(
            "build",
            ["--build-dir", str(self.build_dir), "--cached", "--cache-dir", str(self.work_dir / "build-cache")],
            {
                "Architecture": self.architecture_here(),
                "StripeSecretArn": "arn:given:at:deployment",
                "StripeWebhookSecretArn": "arn:given:at:deployment",
            },
            {},
        )
        return self.build_dir / "template.yaml"

    def deploy(self, emulator: Emulator, parameters: Mapping[str, str]) -> Mapping[str, str]:
        """Deploy what was built to the emulator; returns the stack's outputs. Raises DidNotStart."""
        emulator.client("s3").create_bucket(Bucket=ARTIFACTS_BUCKET)
        self._run(
            "deploy",
            ["--template-file", str(self.build_dir / "template.yaml")],
            {"Architecture": self.architecture_here(), "Profile": "local", **parameters},
            {"AWS_ENDPOINT_URL": emulator.endpoint_url, **CREDENTIALS},
        )
        [stack] = emulator.client("cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}

    def _run(self, command: str, options: Sequence[str], parameters: Mapping[str, str], env: Mapping[str, str]) -> None:
        log = self.work_dir / f"sam-{command}.log"
        overrides = [f"{name}={value}" for name, value in parameters.items()]
        config = ["--config-file", str(self.project / "samconfig.toml"), "--config-env", "local"]
        with log.open("w") as output:
            done = subprocess.run(
                [str(self.program), command, *config, *options, "--parameter-overrides", *overrides],
                cwd=self.project,
                env={**self._environment(), **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode:
            raise DidNotStart(f"`sam {command}` failed:\n{tail(log)}")

    def _environment(self) -> dict[str, str]:
        # SAM leaves folders behind; the emulator's scratch folder is emptied when the run ends.
        scratch = self.work_dir / "tmp"
        scratch.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {
            **kept,
            # `sam build` takes the python3.13 that it finds first, which has to be one of ours.
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "SAM_CLI_TELEMETRY": "0",
            "TMPDIR": str(scratch),
            # Nobody's account is to stand between us and the emulator.
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_DEFAULT_REGION": CREDENTIALS["AWS_DEFAULT_REGION"],
            "AWS_MAX_ATTEMPTS": "1",
        }
