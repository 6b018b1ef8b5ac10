"""`make sbom`: the software bill of materials of each layer and each function, in CycloneDX's JSON.

    layers/NAME/requirements.txt     ─► .local/sbom/NAME.json     a layer of libraries
    shared/, functions/NAME/         ─► .local/sbom/NAME.json     our own code: only itself

`sam build` installs exactly these files, by their hashes; tests/artifact compares the bills with what it built.
"""

import argparse
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
SHARED = "shared"


def requirements_of(project: Path) -> Mapping[str, Path]:
    """The requirements file of each deployed artifact, by its name; of our own code it does not exist."""
    layers = [*sorted(path.parent for path in project.glob("layers/*/requirements.txt")), project / SHARED]
    folders = [*layers, *sorted(app.parent for app in project.glob("functions/*/app.py"))]
    return {folder.name: folder / "requirements.txt" for folder in folders}


def bill_of(name: str, requirements: Path, *, program: Path) -> dict[str, Any]:
    """The bill of one artifact: itself, and each package in it with version, package URL and hashes.

    Args:
        program: cyclonedx-py.

    Raises:
        subprocess.CalledProcessError: the program cannot read the file.
    """
    done = subprocess.run(
        [str(program), "requirements", "--output-reproducible", "--spec-version", "1.6", "-"],
        input=requirements.read_text() if requirements.is_file() else "",
        capture_output=True,
        text=True,
        check=True,
    )
    bill: dict[str, Any] = json.loads(done.stdout)
    bill.setdefault("components", [])
    for component in bill["components"]:
        # It repeats the line of the file, hashes and all.
        component.pop("description", None)
    kind = "library" if requirements.is_file() or name == SHARED else "application"
    bill["metadata"]["component"] = {"type": kind, "name": name, "bom-ref": name}
    return bill


def write_bills(folder: Path, *, project: Path = PROJECT, program: Path | None = None) -> list[Path]:
    """Write the bill of each artifact into the folder; returns their paths. Raises as `bill_of`."""
    program = program or PROJECT / ".venv/opt/scanners/bin/cyclonedx-py"
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.json"):
        leftover.unlink()
    written = []
    for name, requirements in requirements_of(project).items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(bill_of(name, requirements, program=program), indent=2, sort_keys=True) + "\n")
        written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(prog="make sbom", description=__doc__)
    parser.add_argument("--folder", type=Path, default=PROJECT / ".local/sbom")
    for path in write_bills(parser.parse_args().folder):
        packages = len(json.loads(path.read_text())["components"])
        print(f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}: {packages} packages")


if __name__ == "__main__":
    main()
