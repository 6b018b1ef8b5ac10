"""Cuts a text down to the chosen parts: marked blocks and lines stay or go, the markers go.

    # optional: refunds                 a block, up to its end; blocks can be nested
    …
    # end optional

    reserved: int  # optional: refunds  one line

`#` is the comment sign of Python, YAML, TOML and Make. In Markdown a marker is `<!-- optional: refunds -->`. A marker
line may be a banner: `# ===== optional: refunds =====`.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from new_project.parts import BadCondition, is_kept


class BadMarker(ValueError):
    """A marker that cannot be read, or a block without its beginning or end."""


@dataclass(frozen=True)
class _Syntax:
    begin: re.Pattern[str]
    end: re.Pattern[str]
    line: re.Pattern[str]
    any: re.Pattern[str]


_CONDITION = r"optional: (?P<condition>[a-z][a-z|, ]*?)"
_HASH = _Syntax(
    begin=re.compile(rf"\s*# (=+ )?{_CONDITION}( =+)?"),
    end=re.compile(r"\s*# (=+ )?end optional( =+)?"),
    line=re.compile(rf"(?P<kept>.*\S)\s+# {_CONDITION}"),
    any=re.compile(r"# ?(=+ )?(end )?optional\b"),
)
_MARKDOWN = _Syntax(
    begin=re.compile(rf"\s*<!-- {_CONDITION} -->"),
    end=re.compile(r"\s*<!-- end optional -->"),
    line=re.compile(rf"(?P<kept>.*\S)\s+<!-- {_CONDITION} -->"),
    any=re.compile(r"<!--.*optional"),
)


def cut(path: str, text: str, chosen: Collection[str]) -> str:
    """The text without the marked blocks and lines of parts that are not chosen. Raises BadMarker."""
    kept = list(_kept_lines(path, text, chosen))
    return "".join(f"{line}\n" for line in _without_double_blanks(path, kept))


def _kept_lines(path: str, text: str, chosen: Collection[str]) -> Iterator[str]:
    syntax = _MARKDOWN if path.endswith(".md") else _HASH
    open_blocks: list[bool] = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        if begin := syntax.begin.fullmatch(line):
            open_blocks.append(_is_kept(where, begin["condition"], chosen))
        elif syntax.end.fullmatch(line):
            if not open_blocks:
                raise BadMarker(f"{where}: the end of a block that has no beginning")
            open_blocks.pop()
        elif marked := syntax.line.fullmatch(line):
            if _is_kept(where, marked["condition"], chosen) and all(open_blocks):
                yield marked["kept"]
        elif syntax.any.search(line):
            raise BadMarker(f"{where}: not a marker that can be read: {line.strip()}")
        elif all(open_blocks):
            yield line
    if open_blocks:
        raise BadMarker(f"{path}: {len(open_blocks)} blocks without an end")


def _is_kept(where: str, condition: str, chosen: Collection[str]) -> bool:
    try:
        return is_kept(condition.strip(), chosen)
    except BadCondition as bad:
        raise BadMarker(f"{where}: {bad}") from None


def _without_double_blanks(path: str, lines: list[str]) -> Iterator[str]:
    """What was around a block that is gone leaves one blank line, not two; Python files have a formatter."""
    previous = ""
    for line in lines:
        if line or previous or path.endswith(".py"):
            yield line
        previous = line
