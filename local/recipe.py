"""What a copy of this project can do without: local/parts/NAME.toml says for each part what to delete, cut and swap.

    title     its heading in docs/guides/leave-out.md
    says      what a copy without it does instead, or why it lacks nothing
    delete    files: paths, folders (`lab/`) or patterns (`tests/unit/test_refund*.py`)
    blocks    by file: a definition of Python (`Class.method`), a key of YAML, a target of make, each with the comment
              directly above it; a heading of Markdown, or the first words of a paragraph or list item
    cut       by file: exact texts
    swap      by file: pairs of an exact text and what replaces it

Each instruction is about this project as it is, so the order of parts does not matter. One that matches nothing, or two
that contradict each other, are errors: the recipe has to follow the code.
"""

import ast
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("parts")
_GONE = "\0"


class RecipeError(Exception):
    """Instructions do not fit the code, or each other; the message names part, file and text."""


@dataclass(frozen=True)
class Part:
    """The content of one file of the recipe."""

    name: str
    title: str
    says: str
    delete: list[str]
    blocks: Mapping[str, list[str]] = field(default_factory=dict)
    cut: Mapping[str, list[str]] = field(default_factory=dict)
    swap: Mapping[str, list[list[str]]] = field(default_factory=dict)

    def deletes(self, path: str) -> bool:
        """Whether the file goes with the part."""
        return any(_is_meant(path, pattern) for pattern in self.delete)


def load(name: str) -> Part:
    content: dict[str, Any] = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    return Part(name=name, **content)


def section(part: Part) -> str:
    """What docs/guides/leave-out.md says of the part."""
    ids = sorted({name for path, names in part.blocks.items() if path.endswith(".yaml") for name in names})
    changed = {*part.blocks, *part.cut, *part.swap} - {"template.yaml", "monitoring.yaml"}
    rows = [
        ("resources, parameters, alarms", ", ".join(f"`{each}`" for each in ids)),
        ("files", ", ".join(f"`{each}`" for each in part.delete)),
        ("changes", f"{len(changed)} other files"),
    ]
    table = "\n".join(f"| {name} | {cell} |" for name, cell in rows if cell)
    return f"## {part.title}: `{part.name}`\n\n{part.says.strip()}\n\n| removes | |\n|---|---|\n{table}\n"


@dataclass(frozen=True, order=True)
class _Edit:
    start: int
    end: int
    by: str
    of: str

    @property
    def is_cut(self) -> bool:
        return not self.by


def edited(path: str, text: str, parts: Iterable[Part]) -> str:
    """The file's text without these parts."""
    edits = sorted({edit for part in parts for edit in _edits(part, path, text) if isinstance(edit, _Edit)})
    cuts = _merged(edit for edit in edits if edit.is_cut)
    swaps = [edit for edit in edits if not edit.is_cut and not any(_is_within(edit, cut) for cut in cuts)]
    chosen = sorted([*cuts, *swaps])
    for one, other in itertools.pairwise(chosen):
        if other.start < one.end:
            raise RecipeError(f"{path}: {one.of} and {other.of} change the same text: {text[other.start : one.end]!r}")
    for edit in reversed(chosen):
        text = text[: edit.start] + (edit.by or _GONE) + text[edit.end :]
    # A line of which nothing is left goes; what is left of others stays where it is.
    return re.sub(rf"(?m)^[ \t{_GONE}]*{_GONE}[ \t{_GONE}]*\n", "", text).replace(_GONE, "")


def _is_within(edit: _Edit, cut: _Edit) -> bool:
    return cut.start <= edit.start and edit.end <= cut.end


def _merged(cuts: Iterable[_Edit]) -> list[_Edit]:
    """Overlapping ones as one."""
    merged: list[_Edit] = []
    for cut in cuts:
        if merged and cut.start <= merged[-1].end:
            last = merged.pop()
            cut = _Edit(last.start, max(last.end, cut.end), "", last.of)
        merged.append(cut)
    return merged


def misfits(part: Part, texts: Mapping[str, str]) -> Iterator[str]:
    """What the part says of these files and does not hold."""
    for pattern in part.delete:
        if not any(_is_meant(path, pattern) for path in texts):
            yield f"{part.name}: no file is {pattern}"
    for path in sorted({*part.blocks, *part.cut, *part.swap}):
        if path in texts:
            yield from (each for each in _edits(part, path, texts[path]) if isinstance(each, str))
        else:
            yield f"{part.name}: {path} does not exist"


def _is_meant(path: str, pattern: str) -> bool:
    return fnmatch(path, f"{pattern}*" if pattern.endswith("/") else pattern)


def _edits(part: Part, path: str, text: str) -> Iterator[_Edit | str]:
    """Where the part changes the text; or, as a text, which of its instructions does not fit."""
    for name in part.blocks.get(path, []):
        found = list(_blocks(path, text, name))
        if len(found) != 1:
            yield f"{part.name}: {path} has {len(found) or 'no'} block {name!r}, instead of one"
        else:
            yield _Edit(*found[0], "", part.name)
    for old, new in [*([each, ""] for each in part.cut.get(path, [])), *part.swap.get(path, [])]:
        starts = [match.start() for match in re.finditer(re.escape(old), text)]
        if not starts:
            yield f"{part.name}: {path} does not have {old!r}"
        for start in starts:
            line = text.rfind("\n", 0, start) + 1
            is_rest_of_line = old.endswith("\n") and not new and not text[line:start].strip()
            yield _Edit(line if is_rest_of_line else start, start + len(old), new, part.name)


def _blocks(path: str, text: str, name: str) -> Iterator[tuple[int, int]]:
    """Where the blocks of this name begin and end."""
    lines = text.splitlines(keepends=True)
    spans = _of_python if path.endswith(".py") else _of_markdown if path.endswith(".md") else _of_indented
    for first, last in spans(text, lines, name):
        while first and re.match(r"\s*#", lines[first - 1]) and not path.endswith(".md"):
            first -= 1
        start = sum(map(len, lines[:first]))
        yield start, start + sum(map(len, lines[first:last]))


def _of_python(text: str, _: list[str], name: str) -> Iterator[tuple[int, int]]:
    """A definition, or an assignment with the docstring below it."""
    bodies = [ast.parse(text).body]
    *outer, last = name.split(".")
    for each in outer:
        bodies = [node.body for body in bodies for node in body if isinstance(node, ast.ClassDef) and node.name == each]
    for body in bodies:
        for number, node in enumerate(body):
            if last in _names(node):
                below = body[number + 1] if number + 1 < len(body) else node
                is_docstring = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                end = below if is_docstring and not isinstance(node, ast.FunctionDef | ast.ClassDef) else node
                first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
                yield first - 1, end.end_lineno or end.lineno


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _of_markdown(_: str, lines: list[str], name: str) -> Iterator[tuple[int, int]]:
    """A heading with what is below it; or a paragraph or list item, by its first words."""
    for first, line in enumerate(lines):
        if not line.startswith(name):
            continue
        if name.startswith("#"):
            level = len(name) - len(name.lstrip("#"))
            ends = (at for at, each in enumerate(lines) if at > first and re.match(rf"#{{1,{level}}} ", each))
            yield first, next(ends, len(lines))
        else:
            ends = (at for at, each in enumerate(lines) if at > first and re.match(r"\n|- |\d+\. |\|", each))
            last = next(ends, len(lines))
            yield first, last


def _of_indented(_: str, lines: list[str], name: str) -> Iterator[tuple[int, int]]:
    """A key of YAML or a target of make, with what is indented below it and the blank lines that follow."""
    for first, line in enumerate(lines):
        if match := re.match(rf"( *)(?:- )?{re.escape(name)}:(?!=)", line):
            deeper = rf"{match[1]}[ \t]|\n"
            last = next((at for at in range(first + 1, len(lines)) if not re.match(deeper, lines[at])), len(lines))
            # The comment above what follows is not part of it.
            yield first, last


GUIDE = Path(__file__).parent.parent / "docs/guides/leave-out.md"
PARTS = ("due_orders", "fifo", "webhook", "console", "refunds")
"""What WITHOUT may name."""


def guide() -> str:
    """The guide with the sections of all parts."""
    written, marker, _ = GUIDE.read_text().partition(" -->\n")
    return written + marker + "".join(f"\n{section(load(name))}" for name in PARTS)


if __name__ == "__main__":
    GUIDE.write_text(guide())
