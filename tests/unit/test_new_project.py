"""`make new` makes a project of its own: its name everywhere, and nothing that was left out."""

import re
import subprocess
import sys
from pathlib import Path

from local.new_project import LEFT_OUT, NAME, PROJECT, files_of_the_project, make_project, refusal, renamed

MADE = "zz"
"""Nobody's name, and as short as one may be: in a project that `make new` has made, these tests make another one."""


def test_a_new_project_is_complete_under_its_own_name(tmp_path: Path) -> None:
    """No file has the name of this one, every link and `make …` leads somewhere, and the unit tests can be run."""
    folder = tmp_path / "my shop"
    make_project(folder, MADE)
    made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert made == {renamed(path, MADE) for path in files_of_the_project() if not path.startswith(LEFT_OUT)}
    named = [path for path in made if re.search(NAME, (folder / path).read_text(errors="ignore"), re.IGNORECASE)]
    assert set(named) <= {"NOTICE"}
    told = {each for path in folder.rglob("*.md") for each in re.findall(r"`make ([a-z0-9-]+)", path.read_text())}
    assert {each for each in told if f"\n{each}:" not in (folder / "Makefile").read_text()} == set()
    command = [sys.executable, "-m", "pytest", "-q", "tests/unit/test_docs.py"]
    assert "passed" in run(command, folder)
    assert "tests collected" in run([*command[:-1], "--collect-only", "tests/unit"], folder)


def test_a_project_sells_what_it_wants(tmp_path: Path) -> None:
    """Its own price list changes nothing that its tests say, and is what the demo orders from."""
    make_project(tmp_path / "shop", MADE)
    (tmp_path / "shop/functions/orders_api/prices.json").write_text('{"chair": {"CHF": 8900}, "table": {"JPY": 24900}}')
    tests = [
        "tests/unit/orders_api/test_prices.py",
        "tests/unit/orders_api/test_app.py",
        "tests/unit/test_demo_plan.py",
    ]
    assert "passed" in run([sys.executable, "-m", "pytest", "-q", *tests], tmp_path / "shop")


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_bad_name_is_refused(tmp_path: Path) -> None:
    """It names a Python package that nobody has, and is no longer than ours."""
    for name in ("", "s", "Shop", "my-shop", "1shop", "averylongname", "class", "json", "boto3", "ops"):
        assert f"NAME={name} " in refusal(tmp_path / "new", name)


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """Nothing of somebody's is overwritten."""
    (tmp_path / "notes").touch()
    assert "not an empty folder" in refusal(tmp_path, MADE)
    assert "not an empty folder" in refusal(tmp_path / "notes", MADE)
    assert "inside this project" in refusal(PROJECT / "new", MADE)
    assert refusal(tmp_path / "new", MADE) == ""
