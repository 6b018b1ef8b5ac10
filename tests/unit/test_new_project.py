"""`make new` makes a project of its own, which needs nothing that was left behind."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from local.new_project import commit, make_project, refusal
from local.project_files import PROJECT

MADE = "corner-shop"
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


def run(folder: Path, *command: str) -> str:
    wheels = os.pathsep.join(map(str, folder.glob("vendor/*.whl")))  # Python imports from a wheel as it is.
    environment = os.environ | {"AWS_DEFAULT_REGION": "us-east-1", "SAM_CLI_TELEMETRY": "0", "PYTHONPATH": wheels}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "my shop"
    make_project(folder, MADE)
    run(folder, "git", "init", "--quiet")
    run(folder, "git", "add", "--all")
    return folder


def test_a_copy_is_a_shop_of_that_name(made: Path) -> None:
    """The README, its stacks and the page have it; the Python package keeps its own. Every link leads somewhere, and
    every named command is there; the lab, the decisions and the history stay here."""
    readme = (made / "README.md").read_text()
    assert readme.startswith(f"# {MADE}\n")
    assert "(shared/onecharge/payments/charge.py)" in readme
    stacks = tomllib.loads((made / "samconfig.toml").read_text())
    stack_names = [stacks[each]["global"]["parameters"]["stack_name"] for each in ("default", "live")]
    assert stack_names == [MADE, f"{MADE}-live"]
    assert 'SHOP = "Corner shop"' in (made / "web/words.js").read_text()
    assert "passed" in run(made, *PYTEST, "tests/unit/test_docs.py")
    names = {path.name for path in made.iterdir()}
    assert {"template.yaml", "Makefile", "functions", "README.md"} <= names
    assert names.isdisjoint({"lab", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"})


def test_a_bad_name_and_a_folder_in_use_are_refused(tmp_path: Path) -> None:
    """The name becomes a stack's and a bucket's; nothing of somebody's is overwritten."""
    for name in ("", "s", "Shop", "my_shop", "-shop", "my--shop", "1shop", "a" * 21):
        assert f"NAME={name} " in refusal(tmp_path / "new", name)
    for name in ("zz", "shop", "corner-shop", "a" * 20):
        assert refusal(tmp_path / "new", name) == ""
    (tmp_path / "notes").touch()
    assert "not an empty folder" in refusal(tmp_path, MADE)
    assert "not an empty folder" in refusal(tmp_path / "notes", MADE)
    assert "inside this project" in refusal(PROJECT / "new", MADE)


def test_the_first_commit_has_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the name that git knows; if it knows none, the command says so, and the files are there all the same."""
    for each in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(each, str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("EMAIL", "")
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "file").touch()
    (tmp_path / ".gitconfig").write_text("[user]\nuseConfigOnly = true\n")
    assert "nothing is committed yet" in commit(folder)
    (tmp_path / ".gitconfig").write_text("[user]\nname = A\nemail = a@example.com\n")
    assert commit(folder) == ""
    assert run(folder, "git", "ls-tree", "--name-only", "HEAD") == "file\n"
