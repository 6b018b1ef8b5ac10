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
from rich.table import Table
from rich.text import Text

from ops.errors import ExitStatus

DRY_RUN = "dry run: nothing was changed; --yes does it"
_SECRETS = re.compile(
    # Stripe API reference, "Authentication"; "PaymentIntent", `client_secret`; documentation, "Webhook signatures".
    r"\b(?:sk|rk|pk)_(?:test|live)_\w+|\bwhsec_[\w+/=]+|\b\w+_secret_\w+|\bek_(?:test|live)_\w+"
)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""A poison message may hold control characters that move a terminal's cursor: they are shown as escapes."""


@dataclass(frozen=True)
class Report:
    """What a command has found or done."""

    document: Mapping[str, Any]
    """All of it. A list of mappings is a table: its name is the title, the keys of a mapping are the columns."""
    is_wrong: bool = False
    """Something is wrong, or is not done."""
    is_dry_run: bool = False
    text: str | None = None
    """What a person reads instead of the document."""

    @property
    def status(self) -> ExitStatus:
        return ExitStatus.FOUND if self.is_wrong or self.is_dry_run else ExitStatus.OK


def show(report: Report, *, as_json: bool, out: IO[str]) -> None:
    """Write it to a terminal or a file; bold only on a terminal."""
    if as_json:
        out.write(json.dumps(redacted_values(report.document), indent=2, default=str, ensure_ascii=False) + "\n")
        return
    is_terminal = out.isatty()
    console = Console(file=out, force_terminal=is_terminal, no_color=True, highlight=False)
    if not is_terminal:
        console.width = 10_000  # In a file or a pipe no line is folded: a script or an editor reads it.
    lines = [report.text] if report.text else []
    for name, value in report.document.items() if not report.text else ():
        title = name.replace("_", " ")
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            console.print(_table(title, value))
        else:
            listed = ", ".join(map(str, value)) if isinstance(value, list) else value
            console.print(Text(redacted(f"{title}: {'none' if listed in ('', None) else listed}")), soft_wrap=True)
    for line in [*lines, DRY_RUN] if report.is_dry_run else lines:
        console.print(Text(redacted(line)), soft_wrap=True)


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    made = Table(title=Text(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in rows[0]:
        made.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        made.add_row(*(Text(redacted("" if value is None else str(value))) for value in row.values()))
    return made


def redacted(text: str) -> str:
    """The text without secrets."""
    return _SECRETS.sub("[redacted]", _CONTROL.sub(lambda sign: repr(sign.group())[1:-1], text))


def redacted_values(value: Any) -> Any:
    """The same for a document, its names too."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {redacted(str(name)): redacted_values(each) for name, each in value.items()}
    return [redacted_values(each) for each in value] if isinstance(value, list | tuple) else value


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
