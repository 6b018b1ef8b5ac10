"""One schedule of each cell for docs/survival.html: in sentences, with the lines of code where its workers stand."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from lab.survival import published_designs
from lab.survival.designs import DESIGNS
from lab.survival.faults import FAULTS
from lab.survival.libraries import virtual_clock
from lab.survival.results import Cell, schedule
from lab.survival.trial import PAID_AGAIN, RELEASED, Note, Outcome, Place
from onecharge.payments import charge

PROJECT = Path(__file__).parents[2]
OURS = "onecharge"
_CANDIDATES = 30
"""How many schedules that do not fail are compared."""


def _is_shown(place: Place) -> bool:
    """Whether the page shows this line: the published designs, and of ours the function `charge`."""
    file, function, _ = place
    return file == published_designs.__file__ or (file == charge.__file__ and function == "charge")


@dataclass(frozen=True)
class Step:
    """One step of a recorded schedule. `line` is where its worker stands: the file and the line, if it is shown."""

    seconds: int
    worker: int
    text: str
    paid_minor: int
    line: tuple[str, int] | None


@dataclass(frozen=True)
class Recording:
    """One schedule of a cell."""

    number: int
    steps: Sequence[Step]
    charges: int
    fault_at: int
    """The first step at which the fault has occurred; 0 if nothing goes wrong."""
    acts: bool
    """Whether people had to act."""

    @property
    def was_paid_at_fault(self) -> bool:
        """Whether Stripe had charged before the fault."""
        return self.steps[self.fault_at].paid_minor > 0


def record(fault: str, design: str, seed: int, cell: Cell) -> Recording:
    """The first schedule that fails as the cell says; without failures one in which people had to act, or one whose
    fault occurs after the charge.
    """
    fails = bool(cell.double or cell.lost)
    recordings = _recordings(fault, design, seed, cell.schedules)
    if fails:
        return next(each for each in recordings if each.charges != 1)
    return _first(recordings, lambda each: each.acts if cell.released or cell.paid_again else each.was_paid_at_fault)


@cache
def record_ours(fault: str, seed: int, *, was_paid_at_fault: bool, schedules: int) -> Recording:
    """Onecharge's schedule to show beside another one: the fault occurs before or after the charge, as there."""
    recordings = _recordings(fault, OURS, seed, schedules)
    return _first(recordings, lambda each: each.was_paid_at_fault == was_paid_at_fault)


def _first(recordings: Iterator[Recording], is_wanted: Callable[[Recording], bool]) -> Recording:
    first = next(recordings)
    return next(filter(is_wanted, chain([first], islice(recordings, _CANDIDATES))), first)


def _recordings(fault: str, design: str, seed: int, schedules: int) -> Iterator[Recording]:
    with virtual_clock() as clock:
        for number in range(schedules):
            world = schedule(DESIGNS[design], FAULTS[fault], seed, number, clock, tracing=True)
            outcome = world.run()
            yield _recording(number, world.timeline or [], outcome, fault)


def _recording(number: int, notes: Sequence[Note], outcome: Outcome, fault: str) -> Recording:
    steps: list[Step] = []
    fault_at: int | None = None
    for index, note in enumerate(notes):
        text = _sentence(note, notes[index + 1 :])
        if text is None:
            continue
        if note.fault_occurred and fault_at is None:
            fault_at = len(steps)
        line = next(((place[0], place[2]) for place in note.places if _is_shown(place)), None)
        steps.append(Step(note.seconds, note.worker, text, note.paid_minor, line))
    fault_at = 0 if fault == "nothing" else fault_at or 0
    return Recording(number, steps, outcome.charges, fault_at, bool(outcome.acts))


# ---------------------------------------------------------------- sentences

_SENTENCES: Sequence[tuple[str, str]] = (
    (r"(m\d+) sent", r"Message \1 is sent to the queue."),
    (r"(m\d+) is received, (\d+)\.", r"SQS delivers \1 (receive count \2)."),
    (r"(r\d+) is received, (\d+)\.", r"The stored item \1 is delivered (attempt \2)."),
    (r"\S+ at dynamodb (\w+) answered", r"\1: DynamoDB responds."),
    (r"\S+ at sqs ChangeMessageVisibility", "Changes the visibility timeout of its message."),
    (r"\S+ at stripe (\w+) answered", r"Stripe handles the \1."),
    (r"\S+ at stripe (create|confirm|cancel)", r"Calls Stripe: \1. Stripe replays its stored response."),
    (r"\S+ at stripe (\w+)", r"Calls Stripe: \1."),
    (r"dynamodb (\w+): throttled", r"\1: DynamoDB throttles it, and all its retries."),
    (r"dynamodb (\w+): answer lost", r"\1: DynamoDB executes it, but the response is lost."),
    (r"stripe (\w+): drop after", r"The response to the \1 will be lost. Stripe executes it all the same."),
    (r"stripe (\w+): drop before", r"A retry of the \1 does not reach Stripe."),
    (r"stripe (\w+): 500 after", r"Stripe will charge, but respond to the \1 with 500."),
    (r"stripe (\w+): 500 before", r"Stripe will respond to the \1 with 500, and not charge."),
    (r"stripe (\w+): 500, executed later", r"Stripe will respond to the \1 with 500, and charge 15 minutes later."),
    (r"stripe is down", "Calls Stripe, which is down."),
    (r"stripe: key pruned", "Stripe has deleted the idempotency key: to Stripe this is a new request."),
    (r"\S+ raised (\w+)", r"Raises \1."),
    (r"(\S+) done", r"Ends: \1 is handled."),
    (r"(\S+) not done", r"Ends: \1 is not handled."),
    (r"(\S+) is not deleted", r"\1 is not deleted: SQS will deliver it again."),
    (r"\S+ crashes at (.+)", r"Crashes \1."),
    (r"\S+ pauses at (.+)", r"Pauses \1."),
    (r"\S+ is killed at its timeout at (.+)", r"Is killed at its timeout, \1."),
    (r"published again, dropped by the FIFO topic", "The FIFO topic drops the second message."),
    (r"(\S+) goes to the DLQ", r"\1 goes to the DLQ."),
    (r"redriven from the DLQ", "An operator redrives the DLQ."),
    (RELEASED, "The order is held. An operator looks at Stripe, and releases it."),
    (PAID_AGAIN, "The customer is told that the payment was declined, and pays again."),
    (r"0 charges", "In the end Stripe has never charged."),
    (r"1 charges", "In the end Stripe has charged once."),
    (r"2 charges", "In the end Stripe has charged twice."),
    (r"(\d+) charges", r"In the end Stripe has charged \1 times."),
)
_WHERE: Sequence[tuple[str, str]] = (
    (r"start", "before its first request"),
    (r"(?:dynamodb|sqs) (\w+)", r"before the \1"),
    (r"dynamodb (\w+) answered", r"after the \1"),
    (r"stripe (\w+)", r"before the \1 reaches Stripe"),
    (r"stripe (\w+) in flight", r"while Stripe handles the \1"),
    (r"stripe (\w+) answered", r"after Stripe has handled the \1, before the response arrives"),
)


def _translated(text: str, translations: Sequence[tuple[str, str]]) -> str | None:
    for pattern, sentence in translations:
        if found := re.fullmatch(pattern, text):
            return found.expand(sentence)
    return None


def _sentence(note: Note, later: Sequence[Note]) -> str | None:
    """The note as a sentence; None if another one says it."""
    if re.fullmatch(r"\S+ (at (dynamodb \w+|stripe \w+ in flight)|raised BatchProcessingError)", note.text):
        return None
    place = re.fullmatch(r"(\S+ (?:crashes|is killed at its timeout|pauses) at )(.+)", note.text)
    text = place[1] + (_translated(place[2], _WHERE) or place[2]) if place else note.text
    if called := re.fullmatch(r"\S+ at stripe (create|confirm|cancel)", text):
        following = next((each.text for each in later if each.worker == note.worker), "")
        if following.endswith("in flight") or following.startswith("stripe"):
            return f"Calls Stripe: {called[1]}."
        if re.fullmatch(
            r"\S+ (crashes|is killed at its timeout|pauses) at stripe \w+|\S+ raised APIConnectionError", following
        ):
            return None
    return _translated(text, _SENTENCES) or f"{text[0].upper()}{text[1:]}."


def source_of(design: str, stood_in: Sequence[tuple[str, int]]) -> list[tuple[str, int, str]]:
    """The functions that are shown: the design's own and those in which its workers stood. File, first line, text."""
    own: Sequence[object] = (DESIGNS[design].start, DESIGNS[design].relay)
    published: list[Callable[..., Any]] = [
        each for _, each in inspect.getmembers(published_designs, inspect.isfunction)
    ]
    shown = []
    for function in (*published, charge.charge):
        lines, first = inspect.getsourcelines(function)
        file = inspect.getfile(function)
        if function in own or any(each == file and first <= line < first + len(lines) for each, line in stood_in):
            shown.append((str(Path(file).relative_to(PROJECT)), first, "".join(lines)))
    return sorted(shown)
