"""`make sizes`: how large each function is as `sam build` makes it, and how long its process takes to be ready.

The process sees the function and its layers alone, as on Lambda; it imports the handler and handles nothing.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from local.deployment import Sam
from local.stack import PROJECT
from local.terminal import run_in_terminal

_MB = 1_000_000


@dataclass(frozen=True)
class Artifact:
    """One function as built."""

    handler: str
    roots: tuple[Path, ...]
    """Where its modules are: the function, then each of its layers."""

    @property
    def size(self) -> int:
        """Bytes, unzipped, with all layers."""
        return sum(path.stat().st_size for root in self.roots for path in root.rglob("*") if path.is_file())

    def start_seconds(self) -> float:
        """From the start of the process until the handler is imported, and its end."""
        module = self.handler.rpartition(".")[0]
        # Files of the machine's own packages, and whatever the environment holds, stay out.
        python = [str(Path(sys.base_prefix) / "bin/python3.13"), "-I", "-S", "-c"]
        code = f"import os, sys; sys.path += {[str(root) for root in self.roots]!r}; import {module}; os._exit(0)"
        started = time.perf_counter()
        subprocess.run([*python, code], env={"AWS_DEFAULT_REGION": "us-east-1"}, check=True)
        return time.perf_counter() - started


def artifacts_of(build_dir: Path) -> Mapping[str, Artifact]:
    """Every function of a built template, by its logical id."""
    template: dict[str, Any] = yaml.safe_load((build_dir / "template.yaml").read_text())
    everywhere = template["Globals"]["Function"]["Layers"]
    return {
        name: Artifact(
            resource["Properties"]["Handler"],
            (build_dir / name, *_roots(build_dir, [*everywhere, *resource["Properties"].get("Layers", [])])),
        )
        for name, resource in template["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    }


def _roots(build_dir: Path, layers: Sequence[Mapping[str, Any]]) -> list[Path]:
    return [build_dir / layer["Ref"] / "python" for layer in layers if "Ref" in layer]


def report(build_dir: Path, runs: int) -> Table:
    """One line for each function."""
    table = Table("function", "MB with its layers", "ms to start")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, artifact in sorted(artifacts_of(build_dir).items()):
        artifact.start_seconds()  # The files come from the disk.
        started = statistics.median(artifact.start_seconds() for _ in range(runs))
        table.add_row(name, f"{artifact.size / _MB:.1f}", f"{started * 1000:.0f}")
    return table


def measure(console: Console, work_dir: Path, runs: int) -> int:
    """Build, measure and show; returns 0."""
    work_dir.mkdir(parents=True, exist_ok=True)
    sam = Sam(PROJECT / ".venv/opt/sam/bin/sam", Path(sys.executable), PROJECT, work_dir)
    sam.build()
    console.print(report(sam.build_dir, runs))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sizes", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="starts of each function, of which the median is shown")
    parser.add_argument("--work-dir", type=Path, default=PROJECT / ".local/sizes")
    options = parser.parse_args()
    return run_in_terminal(lambda console: measure(console, options.work_dir.resolve(), options.runs))


if __name__ == "__main__":
    sys.exit(main())
