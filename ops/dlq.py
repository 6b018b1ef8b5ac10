"""The messages in the DLQs: which there are and why; send them back to their queues, or delete them.

    dlq list                                 how many of each DLQ and reason; --messages shows each
    dlq redrive --reason … | --message-id …  back to its queue, if its order still needs it
    dlq discard --reason … | --message-id …  away, if its order needs it no more; recorded first, in a file

Each message's order or refund is consulted first. Reading a message hides it for a moment, and deletes nothing.
Messages that SQS does not show, such as those that another reader hides, are counted.
"""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from ops.connection import Stack
from ops.dlq_advice import Action, Advice, advise
from ops.dlq_letters import DLQS, READ_MAX, DeadLetter, Reading, append_record, destination_of, message_to_send, reading
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table

_THREADS = 10


def add_arguments(parser: ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="dlq_command", metavar="list|redrive|discard", required=True)
    shown = commands.add_parser("list", help="count the messages by DLQ and reason")
    shown.add_argument("--messages", action="store_true", help="show each message, too")
    again = commands.add_parser("redrive", help="send messages back to the queues that they belong to")
    again.add_argument("--force", action="store_true", help="also send back what this version's code cannot read")
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
    for each in (again, away):
        each.add_argument("--message-id", action="append", help="only this message")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Raises Problem."""
    if arguments.dlq_command == "list":
        return _list(stack, arguments)
    if not arguments.reason and not arguments.message_id:
        raise Problem("which messages? Name a --reason (`dlq list` shows them) or a --message-id")
    return _change(stack, arguments)


def _readings(stack: Stack, arguments: Namespace) -> Iterator[Reading]:
    for dlq in arguments.queue or DLQS:
        with reading(stack, dlq, limit=READ_MAX) as opened:
            yield opened


def _is_chosen(letter: DeadLetter, arguments: Namespace) -> bool:
    by_reason = arguments.reason is None or letter.reason in arguments.reason
    message_ids = getattr(arguments, "message_id", None)
    return by_reason and (message_ids is None or letter.message_id in message_ids)


def _unseen(opened: Reading) -> list[str]:
    """What a reading could not see."""
    if not opened.unseen:
        return []
    why = f"hidden by another reader, or beyond the first {READ_MAX:,}, or behind the first ten of their FIFO group"
    return [f"{opened.dlq}: about {opened.unseen} messages were not seen: {why}; try again in minutes"]


# ---------------------------------------------------------------- list


def _list(stack: Stack, arguments: Namespace) -> Report:
    letters: list[DeadLetter] = []
    notes: list[str] = []
    for opened in _readings(stack, arguments):
        letters += [letter for batch in opened.batches() for letter in batch if _is_chosen(letter, arguments)]
        notes += _unseen(opened)
    letters.sort(key=lambda letter: (letter.dlq, letter.reason, letter.sent_at))
    reasons = []
    for (dlq, reason), found in groupby(letters, lambda letter: (letter.dlq, letter.reason)):
        group = list(found)
        oldest = group[0].sent_at.isoformat(timespec="seconds")
        types = sorted({each.event_type or "?" for each in group})
        reasons.append({"dlq": dlq, "reason": reason, "messages": len(group), "oldest": oldest, "types": types})
    messages = [letter.described for letter in letters]
    parts: list[Table | str] = [Table.of("messages in the DLQs", "dlq reason messages oldest types", reasons)]
    if arguments.messages:
        names = "message_id dlq reason order_id attempt event_type sent_at"
        parts.append(Table.of("each message", names, messages))
    if not letters and not notes:
        parts = ["no message with this reason" if arguments.reason else "the DLQs are empty"]
    document = {"reasons": reasons, "messages": messages, "notes": notes}
    return Report(document, [*parts, *notes], ExitStatus.FOUND if letters or notes else ExitStatus.OK)


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


def _change(stack: Stack, arguments: Namespace) -> Report:
    """Redrive or discard every chosen message; a dry run, unless --yes is given."""
    results: list[_Result] = []
    notes: list[str] = []
    wanted = set(arguments.message_id or ())
    with ThreadPoolExecutor(_THREADS) as threads:
        for opened in _readings(stack, arguments):
            for batch in opened.batches():
                sent = {result.sent_as for result in results if result.sent_as}
                # A function may find poison faster than this loop ends: once sent back, it is not sent again.
                back = [letter for letter in batch if letter.original_message_id in sent]
                notes += [f"{letter.message_id} was redriven, and came back: {letter.reason}" for letter in back]
                chosen = [letter for letter in batch if letter not in back and _is_chosen(letter, arguments)]
                results += threads.map(partial(_change_letter, stack, arguments, opened), chosen)
                if wanted and wanted <= {result.letter.message_id for result in results}:
                    break
            notes += _unseen(opened)
    missing = wanted - {result.letter.message_id for result in results}
    notes += [f"no message {message_id} was seen" for message_id in sorted(missing)]
    return _report(arguments, results, notes)


def _change_letter(stack: Stack, arguments: Namespace, opened: Reading, letter: DeadLetter) -> _Result:
    advice = advise(stack, letter)
    change = _redrive if arguments.dlq_command == "redrive" else _discard
    try:
        return change(stack, arguments, letter, advice, opened)
    except (BotoCoreError, ClientError, OSError) as error:
        return _Result(letter, advice, False, f"{arguments.dlq_command} failed: {error}")


def _redrive(stack: Stack, arguments: Namespace, letter: DeadLetter, advice: Advice, opened: Reading) -> _Result:
    """Send, then delete; the other order would lose the message. Raises botocore's errors: it is still in the DLQ."""
    is_forced = arguments.force and advice.can_be_forced and destination_of(letter) is not None
    if advice.action is not Action.REDRIVE and not is_forced:
        hint = "`dlq discard` it: " if advice.action is Action.DISCARD else ""
        more = " (--force sends it back)" if advice.can_be_forced else ""
        return _Result(letter, advice, False, f"{hint}{advice.why}{more}")
    if not arguments.yes:
        return _Result(letter, advice, True, f"would be redriven: {advice.why}")
    sent_as = stack.sqs.send_message(**message_to_send(stack, letter))["MessageId"]
    still = "" if opened.delete(letter) else "; still in the DLQ: its next redrive is a harmless duplicate"
    return _Result(letter, advice, True, f"redriven: {advice.why}{still}", sent_as)


def _discard(stack: Stack, arguments: Namespace, letter: DeadLetter, advice: Advice, opened: Reading) -> _Result:
    """Record, then delete. Raises OSError: it is not recorded, and is still in the DLQ."""
    if advice.action is not Action.DISCARD and not arguments.although_unfinished:
        hint = "`dlq redrive` it: " if advice.action is Action.REDRIVE else ""
        return _Result(letter, advice, False, f"{hint}{advice.why} (--although-unfinished discards it)")
    if not arguments.yes:
        return _Result(letter, advice, True, f"would be discarded: {advice.why}")
    path = arguments.record or Path(f"dlq-discarded-{stack.name}.jsonl")
    append_record(path, stack, letter, because=arguments.because, advice=f"{advice.action}: {advice.why}")
    if not opened.delete(letter):
        return _Result(letter, advice, False, "recorded, and not deleted: another reader has it; try again")
    return _Result(letter, advice, True, f"discarded: {advice.why}; recorded in {path}")


def _report(arguments: Namespace, results: Sequence[_Result], notes: Sequence[str]) -> Report:
    changed = "redriven" if arguments.dlq_command == "redrive" else "discarded"
    done = sum(result.is_done for result in results)
    would = "" if arguments.yes else "would be "
    summary = [f"{would}{changed}: {done} of {len(results)} messages"]
    left = Counter(result.outcome for result in results if not result.is_done)
    summary += [f"left in the DLQ: {count}, {why}" for why, count in left.most_common()]
    if done and not arguments.yes:
        summary.append("nothing was changed: --yes does it")
    held = sorted({str(each.letter.order_id) for each in results if each.is_done and each.advice.is_held})
    if held and arguments.dlq_command == "redrive":
        summary.append(f"held, and released by `release --all`: {', '.join(held)}")
    messages = [
        {**each.letter.described, "action": each.advice.action, changed: each.is_done}
        | {"why": each.advice.why, "outcome": each.outcome}
        for each in results
    ]
    counts = {"dry_run": not arguments.yes, changed: done, "left": len(results) - done}
    document = counts | {"messages": messages, "held": held, "notes": list(notes)}
    table = Table.of("messages", "message_id dlq order_id attempt outcome", messages)
    is_finished = not notes and (not results or (arguments.yes and done == len(results)))
    return Report(document, [table, *summary, *notes], ExitStatus.OK if is_finished else ExitStatus.FOUND)
