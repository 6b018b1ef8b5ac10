"""`make new`, run: a folder that is written completely or not at all."""

from pathlib import Path

import pytest

from new_project import __main__ as command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project in the place of this one: files, and functions that nobody reads."""
    project = tmp_path / "here"
    texts = {
        "functions/orders_api/app.py": "import os\nimport json  # optional: refunds\n\nprint(os.name)\n",
        "local/openapi.py": "from pathlib import Path\n\nPath('docs.json').write_text('{}')\n",
        ".gitignore": ".venv\n__pycache__/\n",
        "run": "#!/bin/sh\nonecharge\n",
        "__pycache__/a.pyc": "not a file of the project",
        "new_project/skeleton/README.md": "# PROJECT_NAME: PROJECT_PARTS\n",
    }
    for path, text in texts.items():
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(text)
    monkeypatch.setattr(command, "PROJECT", project)
    return project


def test_a_project_is_written_and_tidied_up(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Into a folder whose path has spaces; a script can be run; no cache is left behind."""
    folder = tmp_path / "a b" / "my shop"
    assert command.main([str(folder), "--with", "refunds", "--name", "shop"]) == 0
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert written == {"README.md", ".gitignore", "run", "functions/orders_api/app.py", "local/openapi.py", "docs.json"}
    assert (folder / "README.md").read_text() == "# shop: refunds\n"
    assert (folder / "functions/orders_api/app.py").read_text() == "import os\n\nprint(os.name)\n"
    assert (folder / "run").read_text() == "#!/bin/sh\nshop\n"
    assert (folder / "run").stat().st_mode & 0o111
    assert "shop is in" in capsys.readouterr().out
    assert [path.name for path in folder.parent.iterdir()] == ["my shop"]


@pytest.mark.parametrize(
    ("path", "text", "reason"),
    [
        ("functions/orders_api/app.py", "# optional: refund\n# end optional\n", "functions/orders_api/app.py:1:"),
        ("functions/orders_api/app.py", "this is no Python\n", "ruff check failed in the new project"),
        ("local/openapi.py", "raise SystemExit('no OPERATIONS')\n", "no OPERATIONS"),
    ],
)
def test_what_cannot_be_written_leaves_nothing_behind(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, text: str, reason: str
) -> None:
    """The command says why; whoever has mended it runs it again."""
    (here / path).write_text(text)
    folder = tmp_path / "beside" / "shop"
    assert command.main([str(folder)]) == 2
    assert reason in capsys.readouterr().err
    assert not folder.parent.exists() or list(folder.parent.iterdir()) == []


def test_nothing_is_asked_for_and_all_of_it_is_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`make new` alone names what it wants."""
    assert command.main([]) == 2
    said = capsys.readouterr().err
    assert "DIR=" in said
    assert "refunds cancel authentication webhook due fifo" in said
