"""What a command tells: a report, as tables for a person or JSON for a script; or a problem, in one line.

Everything passes `redacted`: API keys, signing secrets and client secrets are never printed, whatever a row or an error
message of Stripe's holds.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Any

import stripe
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onecharge.payments.stripe_errors import classify

NO_SUCH_ORDER = "this stack has no such order: check the id, --stack, AWS_PROFILE and AWS_REGION"
OK, FOUND, USAGE = range(3)
"""The exit status, by which a script learns what a command has found; command_line.py says when."""
DRY_RUN = "dry run: nothing was changed; --yes does it"
_SECRETS = re.compile(
    # Stripe API reference, "Authentication"; "PaymentIntent", `client_secret`; documentation, "Webhook signatures".
    r"(?:sk|rk|pk|ek)_(?:test|live)_\w+|whsec_[\w+/=]+|(?:pi|seti)_[0-9A-Za-z]+_secret_\w+"
)
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""A poison message may hold control characters that move a terminal's cursor: they are shown as JSON's escapes."""


class Problem(Exception):
    """Ends the command with this line: wrong arguments, no such stack, a missing permission."""

    def __init__(self, line: str, status: int = USAGE) -> None:
        super().__init__(" ".join(line.split()))
        self.status = status


def problem_of(error: Exception) -> Problem | None:
    """The error as one line that says what to do; None if it is a defect of ours."""
    match error:
        case Problem():
            return error
        case BotoCoreError() | ClientError():
            # It names the endpoint that does not answer, what does not exist, or the action that is not allowed.
            return Problem(f"{error} (check --stack, AWS_PROFILE and AWS_REGION)")
        case stripe.StripeError():
            return Problem(f"Stripe: {classify(error).kind}: {error} (check STRIPE_SECRET_KEY and StripeApiBase)")
    return None


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
    def status(self) -> int:
        return FOUND if self.is_wrong or self.is_dry_run else OK


def show(report: Report, *, as_json: bool, out: IO[str]) -> None:
    """Write it to a terminal or a file. In a file or a pipe no line is folded: a script or an editor reads it."""
    if as_json:
        out.write(redacted(json.dumps(report.document, indent=2, default=str, ensure_ascii=False)) + "\n")
        return
    console = Console(file=out, width=None if out.isatty() else 10_000, no_color=True, highlight=False)
    shown = [report.text] if report.text else [_shown(*each) for each in report.document.items()]
    for each in [*shown, DRY_RUN] if report.is_dry_run else shown:
        console.print(each if isinstance(each, Table) else Text(redacted(each)), soft_wrap=isinstance(each, str))


def _shown(name: str, value: Any) -> Table | str:
    title = name.replace("_", " ")
    if not (isinstance(value, list) and value and isinstance(value[0], Mapping)):
        listed = ", ".join(map(str, value)) if isinstance(value, list) else value
        return f"{title}: {'none' if listed in ('', None) else listed}"
    made = Table(title=Text(title), title_justify="left", box=None, pad_edge=False)
    for column in value[0]:
        made.add_column(column.replace("_", " "), overflow="fold")
    for row in value:
        made.add_row(*(Text(redacted("" if each is None else str(each))) for each in row.values()))
    return made


def redacted(text: str) -> str:
    """The text without secrets. JSON stays JSON, whatever is taken out."""
    return _SECRETS.sub("[redacted]", _CONTROL.sub(lambda sign: f"\\u{ord(sign.group()):04x}", text))


def time_of(seconds: float) -> str:
    """`2026-11-21 21:30:52Z`: UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def seconds_of(text: str) -> int:
    """Epoch seconds, whole as Stripe's, of a time as it is stored."""
    return int(datetime.fromisoformat(text).timestamp())


def duration_of(seconds: float) -> str:
    """`2 days, 3:00:00`, to the second."""
    return str(timedelta(seconds=int(seconds)))
