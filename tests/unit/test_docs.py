"""The documents keep up with the code: their words, links and line lengths."""

import re
from pathlib import Path

import pytest

from testing.harness import PROJECT

HIDDEN = {".github", ".ci"}
"""Folders that begin with a dot are installed, built or cached, but for these."""


def files() -> list[Path]:
    """Everything that is written by hand: nothing that is installed, built or cached."""
    found = []
    for folder, folders, names in PROJECT.walk():
        folders[:] = sorted(name for name in folders if name[0] not in "._" or name in HIDDEN)
        found += [folder / name for name in sorted(names)]
    return [path for path in found if path.is_file()]


MARKDOWN = [path for path in files() if path.suffix == ".md"]
LINE_MAX = 120
# Written in parts, so that this file does not hold what it looks for.
REGISTRIES = ["pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com", "yarn" + "pkg.com"]


def prose(path: Path) -> str:
    """A document without its code blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```", "", path.read_text()))


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def glossary(section: slice) -> list[str]:
    """The terms, in bold, of the tables of these sections."""
    sections = (PROJECT / "docs/glossary.md").read_text().split("\n## ")[section]
    rows = [line.split("|")[1] for text in sections for line in text.splitlines() if line.startswith("| **")]
    return [term for row in rows for term in re.findall(r"\*\*(.+?)\*\*", row)]


def source_of(*folders: str) -> str:
    return "\n".join(path.read_text() for folder in folders for path in sorted((PROJECT / folder).rglob("*.py")))


def occurs(term: str, source: str) -> bool:
    """`lease owner` is also `lease_owner` and `LeaseOwner`."""
    return re.search(r"[\s_-]*".join(map(re.escape, re.split(r"[\s_-]", term))), source, re.IGNORECASE) is not None


@pytest.mark.parametrize(
    ("section", "folders"),
    [(slice(None, -1), ("functions", "shared")), (slice(-1, None), ("testing", "local", "benchmarks"))],
    ids=["product", "proof"],
)
def test_every_term_of_the_glossary_is_in_the_code(section: slice, folders: tuple[str, ...]) -> None:
    """A reader who searches the code with a word of the glossary finds it."""
    source, terms = source_of(*folders), glossary(section)
    assert terms
    assert [term for term in terms if not occurs(term, source)] == []


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    """The file is there, and so is the heading."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if re.match(r"https?://|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_path_exists(path: Path) -> None:
    """`functions/charge_order/` in a text is a folder of this project."""
    top = "|".join(
        sorted(folder.name for folder in PROJECT.iterdir() if folder.is_dir() and folder.name[0] not in "._")
    )
    paths = re.findall(rf"`((?:{top})/[^`\s*…]*)`", path.read_text())
    assert [name for name in paths if not (PROJECT / name).exists()] == []


def test_no_line_of_the_readme_is_too_long() -> None:
    """It is read in terminals and diffs, too."""
    lines = (PROJECT / "README.md").read_text().splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > LINE_MAX] == []


def test_no_file_names_a_package_registry() -> None:
    """Packages come from wherever the installing machine is configured to get them."""
    texts = {path.relative_to(PROJECT): path.read_text(errors="ignore") for path in files()}
    assert [(path, host) for path, text in texts.items() for host in REGISTRIES if host in text] == []
