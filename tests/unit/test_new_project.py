"""`make new` makes a project of its own: its name everywhere, and nothing that was left out."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from local.new_project import (
    NAME,
    commit,
    make_project,
    module_name,
    refusal,
    renamed,
    texts_without,
)
from local.project_files import PROJECT, files_of_the_project
from local.recipe import GUIDE, PARTS, Part, RecipeError, edited, guide, load, misfits

MADE = "corner-shop"
ALWAYS = [load("reference"), load("lab")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "my shop"
    make_project(folder, MADE)
    return folder


def test_a_new_project_is_complete_under_its_own_name(made: Path) -> None:
    """No file has the name of this one, every link and `make …` leads somewhere, and the unit tests can be run."""
    files = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    kept = {path for path in files_of_the_project() if not any(part.deletes(path) for part in ALWAYS)}
    assert files == {renamed(path, path, MADE) for path in kept}
    named = [path for path in files if re.search(NAME, (made / path).read_text(errors="ignore"), re.IGNORECASE)]
    assert set(named) <= {"NOTICE"}
    told = {each for path in made.rglob("*.md") for each in re.findall(r"`make ([a-z0-9-]+)", path.read_text())}
    assert {each for each in told if f"\n{each}:" not in (made / "Makefile").read_text()} == set()
    command = [sys.executable, "-m", "pytest", "-q", "tests/unit/test_docs.py", "tests/unit/test_layout.py"]
    assert "passed" in run(command, made)
    assert "tests collected" in run([*command[:3], "--collect-only", "tests/unit"], made)


def test_it_needs_nothing_that_was_left_out(made: Path) -> None:
    """Linters find neither an import of a module that is not there nor a line that the name has made too long."""
    run([sys.executable, "-m", "ruff", "check", "--no-cache", "."], made)
    run([sys.executable, "-m", "ruff", "format", "--check", "--no-cache", "."], made)
    assert f"from {module_name(MADE)}.contract" in (made / "functions/orders_api/place_order.py").read_text()
    assert 'SHOP = "Corner shop"' in (made / "web/words.js").read_text()
    assert f"!Sub {MADE}/${{AWS::StackName}}" in (made / "template.yaml").read_text()


def test_a_project_sells_what_it_wants(tmp_path: Path) -> None:
    """Its own price list changes nothing that its tests say."""
    make_project(tmp_path / "shop", "zz")
    (tmp_path / "shop/functions/orders_api/prices.json").write_text('{"chair": {"CHF": 8900}, "table": {"JPY": 24900}}')
    tests = ["tests/unit/orders_api/test_prices.py", "tests/unit/orders_api/test_app.py"]
    assert "passed" in run([sys.executable, "-m", "pytest", "-q", *tests], tmp_path / "shop")


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_bad_name_is_refused(tmp_path: Path) -> None:
    """It names a stack, a bucket and a Python package that nobody has."""
    for name in ("", "s", "Shop", "my_shop", "-shop", "my--shop", "1shop", "a" * 21, "class", "json", "boto3", "ops"):
        assert f"NAME={name} " in refusal(tmp_path / "new", name)
    for name in ("zz", "shop", "corner-shop", "a" * 20):
        assert refusal(tmp_path / "new", name) == ""


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """Nothing of somebody's is overwritten."""
    (tmp_path / "notes").touch()
    assert "not an empty folder" in refusal(tmp_path, MADE)
    assert "not an empty folder" in refusal(tmp_path / "notes", MADE)
    assert "inside this project" in refusal(PROJECT / "new", MADE)


def test_what_is_no_part_is_refused(tmp_path: Path) -> None:
    """With the names of those that are."""
    assert "WITHOUT=taxes is not a part; these are: " in refusal(tmp_path / "new", MADE, ["taxes"])
    assert refusal(tmp_path / "new", MADE, PARTS) == ""


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
    assert run(["git", "ls-tree", "--name-only", "HEAD"], folder) == "file\n"


# ---------------------------------------------------------------- the recipe


@pytest.mark.parametrize("name", ["reference", "lab", *PARTS])
def test_the_recipe_fits_the_code(name: str) -> None:
    """Each instruction finds what it is about."""
    texts = {path: (PROJECT / path).read_text(errors="replace") for path in files_of_the_project()}
    assert list(misfits(load(name), texts)) == []


def test_the_guide_says_what_the_recipe_does() -> None:
    """`python -m local.recipe` writes it."""
    assert GUIDE.read_text() == guide()


def test_parts_combine(tmp_path: Path) -> None:
    """No two instructions change the same text, so any of the parts can be left out together."""
    assert texts_without([*ALWAYS, *map(load, PARTS)])


def test_an_instruction_that_no_longer_fits_is_named() -> None:
    """With its part, its file and its text, and nothing is written."""
    part = Part("tax", "", "", ["gone.py"], {"a.py": ["f", "g"]}, {"a.py": ["x = 2"]}, {"b.py": [["x", "y"]]})
    assert list(misfits(part, {"a.py": "def f(): ...\ndef g(): ...\nif x: \n    def g(): ...\n"})) == [
        "tax: no file is gone.py",
        "tax: a.py does not have 'x = 2'",
        "tax: b.py does not exist",
    ]
    twice = Part("tax", "", "", [], {"a.yaml": ["Tax"]})
    assert list(misfits(twice, {"a.yaml": "Tax: 1\nb:\n  Tax: 2\n"})) == [
        "tax: a.yaml has 2 block 'Tax', instead of one"
    ]


def test_what_is_cut_leaves_no_gap() -> None:
    """Blocks with their comments, decorators and docstrings; of a line what is left, of nothing no line."""
    python = '# Why.\n@cached\ndef f() -> int:\n    return 1\n\n\nX = 1\n"""Meaning."""\nY = [1, 2]\n'
    part = Part("p", "", "", [], {"a.py": ["f", "X"], "a.yaml": ["B"], "a.md": ["## Two"]}, {"a.py": [", 2"]})
    assert edited("a.py", python, [part]).strip() == "Y = [1]"
    assert edited("a.yaml", "A:\n  x: 1\n\n# Why.\nB:\n  y: 1\n\nC: 1\n", [part]) == "A:\n  x: 1\n\nC: 1\n"
    assert edited("a.md", "# One\n\n## Two\n\ntext\n\n### Three\n\n## Four\n", [part]) == "# One\n\n## Four\n"


def test_two_parts_that_contradict_each_other_are_an_error() -> None:
    """What one swaps, another one may delete whole, but not change in another way."""
    one = Part("one", "", "", [], swap={"a": [["x and y", "x"]]})
    other = Part("other", "", "", [], swap={"a": [["y and z", "z"]]})
    whole = Part("whole", "", "", [], cut={"a": ["x and y and z\n"]})
    with pytest.raises(RecipeError, match="one and other change the same text: 'y'"):
        edited("a", "x and y and z\n", [one, other])
    assert edited("a", "x and y and z\n", [one, whole]) == ""
