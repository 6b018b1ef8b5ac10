"""Links in the documents resolve, and the commands that they print exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from local.project_files import files_of_the_project
from ops.command_line import COMMANDS, parser
from tests.support.harness import PROJECT

FILES = [PROJECT / path for path in files_of_the_project()]
MARKDOWN = [path for path in FILES if path.suffix == ".md"]
# Those two also name what there was.
GUIDES = [path for path in MARKDOWN if path.name not in ("decisions.md", "CHANGELOG.md")]
RUNBOOK = PROJECT / "docs/runbook.md"


def prose(path: Path) -> str:
    """Returns a document without its code blocks and code spans."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```", "", path.read_text()))


def anchors(path: Path) -> set[str]:
    """Returns the anchors that GitHub makes of a document's headings."""
    headings = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?ms)^```.*?^```", "", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(path: Path) -> Iterator[str]:
    """Yields the links of a document to files or headings that do not exist."""
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


def test_every_target_of_make_that_is_named_exists() -> None:
    """In a code span, or at the beginning of a line of code."""
    makefiles = [path.read_text() for path in (PROJECT / "Makefile", *PROJECT.glob("lab/targets.mk"))]
    targets = {each for text in makefiles for each in re.findall(r"(?m)^([a-z][a-z0-9-]*):", text)}
    named = {(str(path), each) for path in GUIDES for each in re.findall(r"(?m)(?:`|^)make ([a-z0-9-]+)", code(path))}
    assert named
    assert sorted((path, each) for path, each in named if each not in targets) == []


def code(path: Path) -> str:
    """Returns the code blocks and code spans of a document."""
    return "\n".join(re.findall(r"(?ms)^ *```\w*\n.*?^ *```|`[^`\n]+`", path.read_text()))


def test_every_command_of_the_operator_that_is_named_exists() -> None:
    """With its subcommand; and the runbook's commands, which are copied at night, with all their options."""
    joined = {path: re.sub(r"\\\n *", "", path.read_text()) for path in GUIDES}
    printed = {each for text in joined.values() for each in re.findall(r"python -m ops ([^`\n#…]+)", text)}
    named = {found[1] for each in printed if (found := re.match(r"(?:--stack \S+ |--yes )*([a-z][a-z-]*)", each))}
    assert len(named) > 5
    assert named - COMMANDS.keys() == set()
    for each in re.findall(r"python -m ops ([^`\n#]+)", joined[RUNBOOK]):
        words = ["2026-11-21" if word == "DAY" else word for word in shlex.split(each)]
        assert parser().parse_args(words).stack, each


def test_every_test_that_is_named_exists() -> None:
    """The threat model says which test shows that a threat is held off."""
    there = {name for path in FILES if path.suffix == ".py" for name in re.findall(r"def (test_\w+)", path.read_text())}
    named = {each for path in MARKDOWN for each in re.findall(r"`(test_\w+)`", path.read_text())}
    assert named - there == set()
