"""The messages in the DLQs: which there are and why, back to their queues, or away.

    dlq list                                 how many of each DLQ and reason; --messages shows each
    dlq redrive --reason … | --message-id …  back to its queue, if its order still needs it
    dlq discard --reason … | --message-id …  away, if its order needs it no more; recorded first, in a file

Each message's order is consulted first: its status, its payment, and Stripe if only Stripe knows. Reading a message
hides it for a moment, and deletes nothing. What SQS does not show, as what another reader hides, is counted and said.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ops.connection import Stack
from ops.dead_letters import discard, redrive
from ops.dead_letters.advice import Action, Advice
from ops.dead_letters.consult import Consultation
from ops.dead_letters.letter import DeadLetter
from ops.dead_letters.queues import DLQS, READ_MAX, Reading, destination_of, dlqs_of, reading
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table, redacted

HELP = "list, redrive or discard the messages in the DLQs"

_THREADS = 10


def add_arguments(parser: ArgumentParser) -> None:
    """Its three subcommands."""
    commands = parser.add_subparsers(dest="dlq_command", metavar="list|redrive|discard", required=True)
    shown = commands.add_parser("list", help="count the messages by DLQ and reason")
    shown.add_argument("--messages", action="store_true", help="show each message, too")
    again = commands.add_parser("redrive", help="send messages back to the queues that they belong to")
    again.add_argument(
        "--force",
        action="store_true",
        help="send back also what this version's code cannot read, and what Stripe could not be asked about",
    )
    away = commands.add_parser("discard", help="delete messages that nothing is left to do for")
    away.add_argument("--because", required=True, metavar="WHY", help="goes into the record")
    away.add_argument("--although-unfinished", action="store_true", help="although something is left to do")
    away.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="is appended to before anything is deleted (dlq-discarded-STACK.jsonl)",
    )
    for each in (shown, again, away):
        each.add_argument("--queue", action="append", choices=sorted(DLQS), metavar="DLQ", help="logical id of a DLQ")
        each.add_argument("--reason", action="append", help="only with this reason, as `dlq list` shows it")
        each.add_argument(
            "--limit", type=int, default=READ_MAX, help=f"read so many of each DLQ at most ({READ_MAX:,})"
        )
    for each in (again, away):
        each.add_argument("--message-id", action="append", help="only this message")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if arguments.dlq_command == "list":
        return _list(stack, arguments)
    if not arguments.reason and not arguments.message_id:
        raise Problem("which messages? Name a --reason (`dlq list` shows them) or a --message-id")
    if arguments.dlq_command == "redrive":
        return _Change(stack, arguments, done="redriven", on_each=_redrive).run()
    return _Change(stack, arguments, done="discarded", on_each=_discard).run()


# ---------------------------------------------------------------- list


def _list(stack: Stack, arguments: Namespace) -> Report:
    letters: list[DeadLetter] = []
    notes: list[str] = []
    for opened in _readings(stack, arguments):
        letters += [letter for batch in opened.batches() for letter in batch if _is_chosen(letter, arguments)]
        notes += _note(opened)
    groups = Counter((letter.dlq, letter.reason) for letter in letters)
    rows = [
        (dlq, reason, count, _oldest(letters, dlq, reason), _types(letters, dlq, reason))
        for (dlq, reason), count in sorted(groups.items())
    ]
    parts: list[Table | str] = [Table("messages in the DLQs", ("DLQ", "reason", "messages", "oldest", "types"), rows)]
    if arguments.messages:
        parts.append(_messages_table(letters))
    if not letters and not notes:
        parts = ["the DLQs are empty" if not arguments.reason else "no message with this reason"]
    document = {
        "reasons": [dict(zip(("dlq", "reason", "messages", "oldest", "types"), row, strict=True)) for row in rows],
        "messages": [_described(letter) for letter in letters],
        "notes": notes,
    }
    found = ExitStatus.FOUND if letters or notes else ExitStatus.OK
    return Report(document, [*parts, *notes], found)


def _messages_table(letters: Sequence[DeadLetter]) -> Table:
    columns = ("message", "DLQ", "reason", "order", "attempt", "type", "sent", "receives")
    rows = [
        (
            letter.message_id,
            letter.dlq,
            letter.reason,
            letter.order_id,
            letter.attempt,
            letter.event_type,
            f"{letter.sent_at:%Y-%m-%d %H:%M:%S}",
            letter.receive_count,
        )
        for letter in sorted(letters, key=lambda letter: (letter.dlq, letter.reason, letter.sent_at))
    ]
    return Table("each message", columns, rows)


def _oldest(letters: Sequence[DeadLetter], dlq: str, reason: str) -> str:
    oldest = min(letter.sent_at for letter in letters if (letter.dlq, letter.reason) == (dlq, reason))
    return f"{oldest:%Y-%m-%d %H:%M:%S}"


def _types(letters: Sequence[DeadLetter], dlq: str, reason: str) -> str:
    types = {letter.event_type or "?" for letter in letters if (letter.dlq, letter.reason) == (dlq, reason)}
    return ", ".join(sorted(types))


# ---------------------------------------------------------------- redrive and discard


@dataclass(frozen=True)
class _Result:
    """What became, or would become, of one message."""

    letter: DeadLetter
    advice: Advice
    is_done: bool
    outcome: str
    sent_as: str | None = None
    """The message id of a redriven message in its queue."""


@dataclass(frozen=True)
class _Change:
    """A change of every chosen message: a dry run, unless --yes is given."""

    stack: Stack
    arguments: Namespace
    done: str
    on_each: Callable[[Stack, Namespace, DeadLetter, Advice, Reading], _Result]

    def run(self) -> Report:
        consultation = Consultation(self.stack)
        results: list[_Result] = []
        notes: list[str] = []
        wanted = set(self.arguments.message_id or ())
        with ThreadPoolExecutor(_THREADS) as threads:
            for opened in _readings(self.stack, self.arguments):
                for batch in opened.batches():
                    sent = {result.sent_as for result in results}
                    # A function may find poison faster than this loop ends: once sent back, it is not sent again.
                    back = [letter for letter in batch if letter.original_message_id in sent - {None}]
                    notes += [f"{letter.message_id} was redriven, and came back: {letter.reason}" for letter in back]
                    new = [letter for letter in batch if letter not in back]
                    chosen = [letter for letter in new if _is_chosen(letter, self.arguments)]
                    results += threads.map(lambda letter: self._change(consultation, letter, opened), chosen)  # noqa: B023  # Awaited at once.
                    if wanted and wanted <= {result.letter.message_id for result in results}:
                        break
                notes += _note(opened)
        missing = wanted - {result.letter.message_id for result in results}
        notes += [f"no message {message_id} was seen" for message_id in sorted(missing)]
        return self._report(results, notes)

    def _change(self, consultation: Consultation, letter: DeadLetter, opened: Reading) -> _Result:
        advice = consultation.advise(letter)
        try:
            return self.on_each(self.stack, self.arguments, letter, advice, opened)
        except (BotoCoreError, ClientError, OSError) as error:
            return _Result(letter, advice, False, f"not {self.done}: {error}")

    def _report(self, results: Sequence[_Result], notes: Sequence[str]) -> Report:
        done = [result for result in results if result.is_done]
        would = "" if self.arguments.yes else "would be "
        rest = Counter(result.outcome for result in results if not result.is_done)
        summary = [f"{would}{self.done}: {len(done)} of {len(results)} messages"]
        summary += [f"left in the DLQ: {count}, {why}" for why, count in rest.most_common()]
        if done and not self.arguments.yes:
            summary.append("nothing was changed: --yes does it")
        rows = [
            (result.letter.message_id, result.letter.dlq, result.letter.order_id, result.letter.attempt, result.outcome)
            for result in results
        ]
        document = {
            "dry_run": not self.arguments.yes,
            self.done: len(done),
            "left": len(results) - len(done),
            "messages": [
                {**_described(result.letter), "action": result.advice.action, self.done: result.is_done}
                | {"why": result.advice.why, "outcome": result.outcome}
                for result in results
            ],
            "notes": list(notes),
        }
        table = Table("messages", ("message", "DLQ", "order", "attempt", "what"), rows)
        is_finished = self.arguments.yes and len(done) == len(results) and not notes
        is_nothing = not results and not notes
        status = ExitStatus.OK if is_finished or is_nothing else ExitStatus.FOUND
        return Report(document, [table, *summary, *notes], status)


def _redrive(stack: Stack, arguments: Namespace, letter: DeadLetter, advice: Advice, opened: Reading) -> _Result:
    is_forced = arguments.force and advice.can_be_forced and destination_of(letter) is not None
    if advice.action is not Action.REDRIVE and not is_forced:
        hint = {Action.DISCARD: "`dlq discard` it: ", Action.KEEP: ""}[advice.action]
        more = " (--force sends it back)" if advice.can_be_forced else ""
        return _Result(letter, advice, False, f"{hint}{advice.why}{more}")
    if not arguments.yes:
        return _Result(letter, advice, True, f"would be redriven: {advice.why}")
    redriven = redrive.send_back(stack, letter, opened)
    _log("message redriven", letter, advice, sent_as=redriven.sent_as)
    still = "" if redriven.is_deleted else "; still in the DLQ: its next redrive is a harmless duplicate"
    return _Result(letter, advice, True, f"redriven: {advice.why}{still}", redriven.sent_as)


def _discard(stack: Stack, arguments: Namespace, letter: DeadLetter, advice: Advice, opened: Reading) -> _Result:
    if advice.action is not Action.DISCARD and not arguments.although_unfinished:
        hint = {Action.REDRIVE: "`dlq redrive` it: ", Action.KEEP: ""}[advice.action]
        return _Result(letter, advice, False, f"{hint}{advice.why} (--although-unfinished discards it)")
    if not arguments.yes:
        return _Result(letter, advice, True, f"would be discarded: {advice.why}")
    record = discard.record_of(stack, letter, advice, because=arguments.because, by=stack.caller, now=datetime.now(UTC))
    path = arguments.record or Path(f"dlq-discarded-{stack.name}.jsonl")
    discard.append(record, path)
    if not opened.delete(letter):
        return _Result(letter, advice, False, "recorded, and not deleted: somebody else reads it; try again")
    _log("message discarded", letter, advice, because=arguments.because, recorded_in=str(path))
    return _Result(letter, advice, True, f"discarded: {advice.why}; recorded in {path}")


# ---------------------------------------------------------------- what the three share


def _readings(stack: Stack, arguments: Namespace) -> Iterator[Reading]:
    if arguments.limit < 1:
        raise Problem("--limit is at least 1")
    for dlq in arguments.queue or dlqs_of(stack):
        with reading(stack, dlq, limit=arguments.limit) as opened:
            yield opened


def _is_chosen(letter: DeadLetter, arguments: Namespace) -> bool:
    by_reason = arguments.reason is None or letter.reason in arguments.reason
    message_ids = getattr(arguments, "message_id", None)
    return by_reason and (message_ids is None or letter.message_id in message_ids)


def _note(opened: Reading) -> list[str]:
    """What a reading could not see."""
    if not opened.unseen:
        return []
    why = ["hidden by another reader", "beyond --limit"]
    why.append("behind the first ten of their FIFO group")
    return [f"{opened.dlq}: about {opened.unseen} messages were not seen: {', or '.join(why)}; try again in minutes"]


def _described(letter: DeadLetter) -> dict[str, Any]:
    return {
        "message_id": letter.message_id,
        "dlq": letter.dlq,
        "reason": letter.reason,
        "order_id": letter.order_id,
        "attempt": letter.attempt,
        "event_type": letter.event_type,
        "sent_at": letter.sent_at.isoformat(),
        "receive_count": letter.receive_count,
        "source_queue": letter.source_queue,
    }


def _log(message: str, letter: DeadLetter, advice: Advice, **details: str) -> None:
    """One structured line for each message that was changed, beside the report."""
    line = {"level": "INFO", "service": "ops", "message": message, "timestamp": datetime.now(UTC).isoformat()}
    print(redacted(json.dumps({**line, **_described(letter), "advice": advice.why, **details})), file=sys.stderr)
