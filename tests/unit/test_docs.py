"""The documents keep up with the code: their words, links and line lengths."""

import re
from collections.abc import Iterator
from pathlib import Path

from local.project_files import files_of_the_project
from tests.support.harness import PROJECT

FILES = [PROJECT / path for path in files_of_the_project()]
MARKDOWN = [path for path in FILES if path.suffix == ".md"]
# Written in parts, so that this file does not hold what it looks for.
REGISTRIES = ["pypi" + ".org", "python" + "hosted.org", "npm" + "js.org", "npm" + "js.com", "yarn" + "pkg.com"]


def prose(path: Path) -> str:
    """A document without its code blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```", "", path.read_text()))


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a document's headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(path: Path) -> Iterator[str]:
    """The links of a document to files or headings that do not exist."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        is_ours = not re.match(r"https?://|mailto:", link)
        if is_ours and not (target.exists() and (not anchor or anchor in anchors(target))):
            yield link


def test_every_link_leads_somewhere() -> None:
    """The file is there, and so is the heading."""
    assert {str(path): links for path in MARKDOWN if (links := list(dead_links(path)))} == {}


def test_every_heading_that_the_code_names_exists() -> None:
    """An operator follows `docs/runbook.md#striperefuses`, which a finding of `explain` prints."""
    sources = [path for path in FILES if path.suffix in (".py", ".yaml") and path != Path(__file__)]
    named = {match for path in sources for match in re.findall(r"(docs/[\w/-]+\.md)#([\w-]+)", path.read_text())}
    assert named
    assert [(name, anchor) for name, anchor in sorted(named) if anchor not in anchors(PROJECT / name)] == []


def test_every_path_exists() -> None:
    """`functions/charge_order/` in a text is a folder of this project."""
    top = "|".join(sorted({path.relative_to(PROJECT).parts[0] for path in FILES}))
    named = {(path, name) for path in MARKDOWN for name in re.findall(rf"`((?:{top})/[^`\s*…]*)`", path.read_text())}
    assert [(str(path), name) for path, name in sorted(named) if not (PROJECT / name).exists()] == []


def test_what_is_extended_is_where_the_guide_says() -> None:
    """docs/guides/extend.md names files, and in each row names that are in its file."""
    rows = re.findall(r"(?m)^\| `(\S+/\S+)` \| (.+) \|$", (PROJECT / "docs/guides/extend.md").read_text())
    assert len(rows) >= 14
    named = {(path, name) for path, what in rows for name in re.findall(r"`([A-Za-z_]+)`", what)}
    words = {path: set(re.findall(r"\w+", (PROJECT / path).read_text())) for path, _ in rows}
    assert [(path, name) for path, name in sorted(named) if name not in {*words[path], "tax_minor"}] == []


def test_every_term_of_the_glossary_is_in_the_code() -> None:
    """A reader who searches the code with a word of the glossary finds it; `lease owner` is also `lease_owner`."""
    terms = re.findall(r"\*\*(.+?)\*\*", (PROJECT / "docs/glossary.md").read_text())
    folders = ("functions", "shared", "stripe_standin", "lab", "tests")
    source = "\n".join(path.read_text() for each in folders for path in (PROJECT / each).rglob("*.py"))
    patterns = {term: re.sub(r"[\s_-]", r"[\\s_-]*", term) for term in terms}
    assert terms
    assert [term for term, pattern in patterns.items() if not re.search(pattern, source, re.IGNORECASE)] == []


def test_no_file_names_a_package_registry() -> None:
    """Packages come from wherever the installing machine is configured to get them."""
    texts = {path: path.read_text(errors="ignore") for path in FILES}
    assert [(str(path), host) for path, text in texts.items() for host in REGISTRIES if host in text] == []
