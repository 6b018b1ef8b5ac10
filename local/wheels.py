"""`make wheels`: builds the local stack and the Stripe stand-in as wheels, with Python's standard library alone.

A wheel is a zip of the package and three files about it (PyPA, "Binary distribution format"). pip would build one too,
but has to install setuptools first.
"""

import base64
import hashlib
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path

from local.project_files import PROJECT, files_of_the_project

NOT_SHIPPED = """
    local/new_* local/wheels.py local/pyproject.toml
    stripe_standin/tests/* stripe_standin/pyproject.toml
""".split()


def shipped(package: str) -> list[str]:
    """Returns the paths of the package's files."""
    files = (path for path in files_of_the_project() if path.startswith(f"{package}/"))
    return [path for path in files if not any(fnmatch(path, each) for each in NOT_SHIPPED)]


def build(package: str, folder: Path) -> Path:
    """Builds the package's wheel in the folder; returns its path."""
    project = tomllib.loads((PROJECT / package / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    metadata = [f"Name: {project['name']}", f"Version: {version}", f"Summary: {project['description']}"]
    metadata += [f"Requires-Dist: {each}" for each in project["dependencies"]]
    metadata += [f"Requires-Python: {project['requires-python']}"]
    scripts = [f"{command} = {target}" for command, target in project.get("scripts", {}).items()]
    about = {
        "METADATA": ["Metadata-Version: 2.1", *metadata],
        "WHEEL": ["Wheel-Version: 1.0", "Generator: make wheels", "Root-Is-Purelib: true", "Tag: py3-none-any"],
        "entry_points.txt": ["[console_scripts]", *scripts],
    }
    contents = {path: (PROJECT / path).read_bytes() for path in shipped(package)}
    info = f"{name}-{version}.dist-info"
    contents |= {f"{info}/{each}": ("\n".join(lines) + "\n").encode() for each, lines in about.items()}
    record = [f"{path},{_digest(content)},{len(content)}" for path, content in contents.items()]
    contents[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,"]) + "\n").encode()
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in contents.items():
            # The same content makes the same file, and the same hash.
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return wheel


def _digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def build_all(folder: Path) -> list[Path]:
    """Builds both wheels in the folder; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return [build(package, folder) for package in ("local", "stripe_standin")]


if __name__ == "__main__":
    print(*build_all(Path(sys.argv[1])), sep="\n")
