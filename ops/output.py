"""What a command has found, as tables for a person or as one JSON document for a script.

Nothing leaves without passing `redacted`: API keys, signing secrets and client secrets are never printed, whatever a
row or an error message of Stripe's holds.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ops.errors import ExitStatus

_SECRETS = re.compile(
    # Stripe API reference, "Authentication"; "PaymentIntent", `client_secret`; documentation, "Webhook signatures".
    r"\b(?:sk|rk|pk)_(?:test|live)_\w+|\bwhsec_[\w+/=]+|\b\w+_secret_\w+|\bek_(?:test|live)_\w+"
)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""A poison message may hold control characters that move a terminal's cursor: they are shown as escapes."""


@dataclass(frozen=True)
class Table:
    """Rows under a title; a value that is None is shown as nothing."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    styles: Sequence[str | None] = ()
    """The color of each row, as rich names it; none if there are fewer."""

    @classmethod
    def of(
        cls, title: str, names: str, documents: Sequence[Mapping[str, Any]], styles: Sequence[str | None] = ()
    ) -> "Table":
        """The values of these names, separated by spaces, from each of a document's parts."""
        columns = names.split()
        rows = [[each[name] for name in columns] for each in documents]
        return cls(title, [column.replace("_", " ") for column in columns], rows, styles)


@dataclass(frozen=True)
class Report:
    """What a command has found or done."""

    document: Mapping[str, Any]
    """All of it, for scripts: what --json prints."""
    parts: Sequence[Table | str]
    """The same for a person: tables, and lines between them."""
    status: ExitStatus = ExitStatus.OK


def show(report: Report, *, as_json: bool, out: IO[str]) -> None:
    """Write it to a terminal or a file; colors only on a terminal, and not with NO_COLOR."""
    if as_json:
        out.write(json.dumps(redacted_values(report.document), indent=2, default=str, ensure_ascii=False) + "\n")
        return
    is_terminal = out.isatty()
    # In a file or a pipe no line is folded: a script or an editor reads it.
    console = Console(file=out, force_terminal=is_terminal, no_color=not is_terminal or None, highlight=False)
    if not is_terminal:
        console.width = 10_000
    for part in report.parts:
        if isinstance(part, Table) and part.rows:
            console.print(_as_rich(part))
        else:
            text = part if isinstance(part, str) else f"{part.title}: none"
            console.print(Text(redacted(text)), soft_wrap=True)


def redacted(text: str) -> str:
    """The text without secrets."""
    return _SECRETS.sub("[redacted]", _CONTROL.sub(lambda sign: repr(sign.group())[1:-1], text))


def time_of(seconds: float) -> str:
    """`2026-11-21 21:30:52Z`: UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration_of(seconds: float) -> str:
    """`2 d 3 h`, `15 min`, `40 s`: the two largest units."""
    left, parts = int(seconds), []
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def redacted_values(value: Any) -> Any:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {redacted(str(name)): redacted_values(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redacted_values(each) for each in value]
    return value


def _as_rich(table: Table) -> RichTable:
    title = Text(redacted(table.title))
    made = RichTable(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        made.add_column(column, overflow="fold")
    for index, row in enumerate(table.rows):
        style = table.styles[index] if index < len(table.styles) else None
        made.add_row(*("" if value is None else Text(redacted(str(value))) for value in row), style=style)
    return made
