"""One order: its row, Stripe, everyone at work on them, and what goes wrong.

A state is a value; a step yields every state that can follow. Time passes in thirds of a day: Stripe remembers a key
for three, an order may be created for two, and a worker lives less than one. A lease may be taken over at any moment.
A lost answer needs no step of its own: it is a crash after the request.
"""

from collections.abc import Iterator
from typing import NamedTuple

from lab.specification.explore import Rules, replaced, use

FRESH, REMEMBERED = 2, 3
"""Thirds of a day: how long an order, or its release, may be created (22 hours are less), and a key is remembered."""
KEYS = 2
"""Keys of a window, one after the other; the code has five."""
FINAL, OPEN = ("SUCCEEDED", "CANCELED"), ("open", "action")

Key = tuple[int, int]


class Row(NamedTuple):
    attempt: int = 1
    state: str = "PENDING"
    intent: int = -1
    cancel: bool = False
    released: int = -1
    owner: int = -1
    held: bool = False  # Until it is released, whatever its window says.


class Intent(NamedTuple):
    status: str = "open"  # open, action, processing, succeeded, canceled, duplicate: canceled by a release
    has_page: bool = False  # The customer's page knows its client secret.


class Worker(NamedTuple):
    """The deliveries of one message, one after the other: attempt 1 or 2, or a cancellation (0)."""

    attempt: int
    at: str = "waits"
    intent: int = -1
    outcome: str = ""
    cancels: bool = False
    window: int | None = None  # In which it may create: 0 is the order's own, n that of a release; None is none.
    is_replay: bool = False
    is_answered: bool = False
    is_old: bool = False  # A third of a day has ended since its claim: it ends before the next one does.


class Left(NamedTuple):
    """How often what may happen can still happen."""

    messages: tuple[int, ...] = (1,)
    ticks: int = 4
    error: int = 0  # An answer lost, a stored 500: of a create or a confirm, executed now, later or never.
    loss: int = 0
    restore: int = 0
    person: int = 0  # Cancels a PaymentIntent at Stripe.
    page: bool = False  # Confirms with another card.
    processing: bool = False
    long_memory: bool = False  # Stripe may remember a key for longer than a day.


class State(NamedTuple):
    left: Left
    time: int = 0
    row: Row | None = None
    backup: Row | None = None
    intents: tuple[Intent, ...] = ()
    creates: tuple[tuple[Key, int, int], ...] = ()  # Window and number; since when; PaymentIntent, or -1: a failure.
    confirms: tuple[tuple[Key, int], ...] = ()  # PaymentIntent and attempt; since when.
    late: tuple[int, ...] = ()  # Answered with a 500, and may still be executed: a confirm, or a create (-1).
    workers: tuple[Worker, ...] = ()
    told: frozenset[str] = frozenset()


Step = tuple[str, State]


def violation(s: State) -> str:
    """What the promise forbids, if it is so."""
    paid = sum(intent.status == "succeeded" for intent in s.intents)
    if paid > 1:
        return "charged twice"
    if "CANCELED" in s.told and paid:
        return "charged though told CANCELED"
    return "told SUCCEEDED without a charge" if "SUCCEEDED" in s.told and not paid else ""


def with_intent(s: State, index: int, **changes: object) -> State:
    return s._replace(intents=replaced(s.intents, index, s.intents[index]._replace(**changes)))  # type: ignore[arg-type]


def with_row(s: State, row: Row, **changes: object) -> State:
    """The row as it is written; a state but PENDING tells the order its outcome."""
    row = row._replace(**changes)  # type: ignore[arg-type]
    told = {row.state} if row.state in FINAL else {f"DECLINED {row.attempt}"} if row.state == "DECLINED" else set()
    return s._replace(row=row, told=s.told | told)


def by_itself(s: State, broken: Rules) -> Iterator[Step]:
    """What happens without a worker of ours."""
    if s.time < s.left.ticks and not any(w.is_old for w in s.workers):
        aged = tuple(w if w.at in ("waits", "done") else w._replace(is_old=True) for w in s.workers)
        after = s._replace(time=s.time + 1, workers=aged)
        yield "time passes", after if s.left.long_memory else forget(after)
    if s.left.long_memory and (after := forget(s)) != s:
        yield "Stripe forgets", after
    for place, index in enumerate(s.late):
        rest = s._replace(late=s.late[:place] + s.late[place + 1 :])
        yield "a late request is dropped", rest
        if index < 0:
            yield "a late create", rest._replace(intents=(*s.intents, Intent()))
        elif s.intents[index].status in OPEN:
            for status in ("succeeded", *OPEN):
                yield f"a late confirm of {index}: {status}", with_intent(rest, index, status=status)
    for index, intent in enumerate(s.intents):
        if intent.status in ("action", "processing"):
            yield f"the bank accepts {index}", with_intent(s, index, status="succeeded")
            yield f"the bank declines {index}", with_intent(s, index, status="open")
        if intent.status in OPEN and (person := use(s, "person")):
            yield f"a person cancels {index}", with_intent(person, index, status="canceled")
        if intent.has_page and intent.status in OPEN:
            for status in ("succeeded", *OPEN, *["processing"] * s.left.processing):
                yield f"the page confirms {index}: {status}", with_intent(s, index, status=status)
    row = s.row
    if s.left.page and row and row.state == "REQUIRES_ACTION":
        yield "the page is told", with_intent(s, row.intent, has_page=True)
    if row and (lost := use(s, "loss")):
        yield "the row is lost", lost._replace(row=None)
    if row and s.left.restore and s.backup is None:
        yield "a backup is taken", s._replace(backup=row._replace(owner=-1))
    if s.backup and (restored := use(s, "restore")):
        # The permission to create is not among what the runbook's command writes back.
        released = s.backup.released if "a restored release counts" in broken else -1
        yield "the row is put back", restored._replace(row=s.backup._replace(released=released), backup=None)


def forget(s: State) -> State:
    """Without the keys that Stripe need not remember any more."""
    creates = tuple(each for each in s.creates if s.time - each[1] < REMEMBERED)
    return s._replace(creates=creates, confirms=tuple(each for each in s.confirms if s.time - each[1] < REMEMBERED))
