"""`sam init --location`: the repository is its own template, and needs no cookiecutter.json."""

import os
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

from new_project.__main__ import read_project

PROJECT = Path(__file__).resolve().parents[2]
SAM = PROJECT / ".venv/opt/sam/bin/sam"


@pytest.mark.skipif(not SAM.exists(), reason="SAM is not installed: make install")
def test_sam_init_copies_the_project_as_it_is(tmp_path: Path) -> None:
    """Of a zip file, as of a Git URL. The copy has no Git history, and all that it needs for `make new`."""
    files = read_project(PROJECT)
    with ZipFile(tmp_path / "onecharge.zip", "w") as archive:
        archive.mkdir("onecharge-main")
        for path, text in files.items():
            archive.writestr(f"onecharge-main/{path}", text)
    subprocess.run(
        [SAM, "init", "--location", tmp_path / "onecharge.zip", "--name", "shop-payments", "--no-input"],
        cwd=tmp_path,
        env={**os.environ, "SAM_CLI_TELEMETRY": "0", "HOME": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=120,
    )
    assert read_project(tmp_path / "shop-payments") == files
