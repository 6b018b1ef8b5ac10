"""The world in which the charge protocol works: one order's row, Stripe, everyone at work on them, and what goes wrong.

A state is a value; each step gives every state that can follow it. Time is one event: before it, Stripe remembers every
idempotency key, and a clock may call the order 22 hours old or not; after it, every clock does, and any key may be
forgotten. Leases have no times: one may be taken over at any moment, and a worker may live however long. An answer that
is lost needs no step of its own: it is a crash after the request.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

ANY = -1  # Any number of times.
Key = tuple[str | int, ...]


class Intent(NamedTuple):
    """A PaymentIntent at Stripe; `abandoned`, `by_customer`, `by_stripe` (after a decline `given_up`) and `by_hand` say
    why it is canceled."""

    generation: int
    status: str = "new"
    attempt: int = 0  # Whose payment method it holds.
    charge: int = 0  # Its `latest_charge`: most declines make one, a failed authentication does not.

    @property
    def is_open(self) -> bool:
        """Whether it can be confirmed, or canceled."""
        return self.status in ("new", "declined", "requires_action")

    @property
    def is_canceled(self) -> bool:
        return self.status in ("abandoned", "by_customer", "by_stripe", "given_up", "by_hand")


class Row(NamedTuple):
    """The order's row in the Payments table. The id of its PaymentIntent is a place in State.intents; -1 is none."""

    attempt: int = 1
    state: str = "PENDING"
    generation: int = 0  # Of its PaymentIntent, or the next one to be created.
    intent: int = -1
    cancel_requested: bool = False
    declined_charge: int = 0  # The charge that the PaymentIntent showed when it was declined, or the customer's turn.
    lease_owner: int = 0
    accepted: tuple[int, ...] = ()  # Canceled by hand, and a person has said to retry all the same.
    is_listed: bool = True  # Among the unfinished rows, through which the reconciler goes.

    @property
    def is_unpaid(self) -> bool:
        return self.state in UNPAID


UNPAID = ("PENDING", "DECLINED", "REQUIRES_ACTION")


class Worker(NamedTuple):
    """A delivery of an attempt, a cancellation, a run of the reconciler or a webhook; `at` is what it does next."""

    id: int
    kind: str
    attempt: int
    at: str = ""
    row: Row = Row()  # As read or claimed; after a claim, generation and intent run ahead of what is written.
    intent: int = -1  # The PaymentIntent that its id will replace in the row; the reconciler's: the one it asks about.
    own: Intent | None = None  # The PaymentIntent that it is to write down, as Stripe has shown it.
    seen: int = 0  # How many PaymentIntents there were when it looked up; 0 is no lookup, -1 one that a mutant skips.
    confirmed: str = ""  # "answered" or "unusable", once Stripe has replayed or refused this attempt's confirm.
    outcome: str = ""
    accepted: tuple[int, ...] = ()  # The PaymentIntents that were canceled by hand when a person looked.
    is_fooled: bool = False  # The table was restored since it read the row: revisions prove nothing to it.


class Left(NamedTuple):
    """How large the world may become, and how often what may still happen (ANY: however often)."""

    at_once: int = 2  # Workers. When none is left, messages are redelivered and the reconciler runs again, without end.
    intents: int = 3
    deliver_1: int = 0
    deliver_2: int = 0
    cancel: int = 0
    reconcile: int = 0
    crash: int = 0
    error: int = 0  # 500s: executed now, later or never, stored or not.
    refusal: int = 0  # Stripe refuses a request, and its key replays that.
    strike: int = 0  # Stripe cancels a PaymentIntent by itself.
    stop: int = 0  # A person cancels a PaymentIntent in the Dashboard: as fraudulent, say.
    backup: int = 0
    restore: int = 0  # To the backup, leases and all; without one, the row is lost.
    forget: int = 0  # Stripe forgets a key.
    refuse: int = 0  # Stripe always refuses to create this PaymentIntent.
    review: int = 0  # Stripe refuses requests as invalid for an hour, so that a person has to resolve the payment.
    person: int = 0


class State(NamedTuple):
    """Everything. `said` and `excused` are for the checks alone."""

    left: Left
    is_old: bool = False
    row: Row | None = None
    backup: Row | None = None
    intents: tuple[Intent, ...] = ()
    keys: tuple[tuple[Key, str | int], ...] = ()  # Idempotency keys, each with its stored response.
    late: tuple[Key, ...] = ()  # Answered with a 500, and yet to be executed.
    workers: tuple[Worker, ...] = ()
    said: frozenset[str] = frozenset()
    excused: bool = False  # A key is forgotten, the table restored, a 500 late, or the customer's page tried again.

    @property
    def is_given_up(self) -> bool:
        """Whether Stripe itself has canceled a PaymentIntent after a decline."""
        return any(intent.status == "given_up" for intent in self.intents)


Step = tuple[str, State]
Executed = tuple[str, State, str | int]  # What Stripe did, the state after it, its answer.


def by_itself(s: State) -> Iterator[Step]:
    """What happens without a worker: crashes, late executions, banks, customers, backups, removed keys."""
    if not s.is_old:
        yield "the order is a day old", s._replace(is_old=True)
    for w in s.workers if s.left.crash else ():
        yield f"{w.kind}#{w.id} crashes, or its answer is lost", finish(use_up(s, "crash") or s, w)
    for key in s.late:
        executed = s._replace(late=tuple(each for each in s.late if each != key), excused=True)
        execute = create(executed, int(key[1])) if key[0] == "create" else confirm(executed, int(key[1]), int(key[2]))
        yield from ((f"Stripe executes a {key[0]} late: {what}", after) for what, after, _ in execute)
    for index, intent in enumerate(s.intents):
        page_tries_again = intent.status == "declined" and "REQUIRES_ACTION" in s.said
        if intent.status in ("requires_action", "processing") or page_tries_again:
            yield f"the bank accepts {index}", _becomes(s, index, "succeeded", excused=page_tries_again)
            charge = intent.charge if intent.status == "processing" else _new_charge(s)
            yield f"the bank declines {index}", _becomes(s, index, "declined", charge=charge, excused=page_tries_again)
        if intent.status == "requires_action":
            yield f"the customer fails to authenticate {index}", _becomes(s, index, "declined")
        if intent.is_open and (struck := use_up(s, "strike")):
            becomes = "given_up" if intent.status == "declined" or intent.charge else "by_stripe"
            yield f"Stripe cancels {index} by itself", _becomes(struck, index, becomes)
        if intent.is_open and (stopped := use_up(s, "stop")):
            is_named = stopped.row is not None and stopped.row.intent == index
            said = stopped.said | {"stopped"} | ({f"stopped {index}"} if is_named else set())
            yield f"a person cancels {index}", _becomes(stopped, index, "by_hand")._replace(said=said)
    yield from _table_and_keys(s)


_KINDS = {
    "deliver_1": ("delivery", 1),
    "deliver_2": ("delivery", 2),
    "cancel": ("cancel", 0),
    "reconcile": ("reconciler", 0),
    "person": ("person", 0),
}


def starts(s: State) -> Iterator[tuple[State, Worker]]:
    """Which workers may start. One that waits before its first request knows nothing: it starts with that request."""
    ids = {1, 2, 3, 4} - {each.id for each in s.workers}
    for what, (kind, attempt) in _KINDS.items():
        again = None if s.workers or kind == "cancel" else s
        started = again or use_up(s, what)
        may_start = attempt < 2 or "DECLINED 1" in s.said
        if kind == "person":
            may_start = s.row is not None and s.row.state == "NEEDS_REVIEW"
        if started and may_start and len(s.workers) < s.left.at_once:
            worker = Worker(min(ids), kind, attempt)
            yield started._replace(workers=(*s.workers, worker)), worker


def _table_and_keys(s: State) -> Iterator[Step]:
    if s.row and s.backup != s.row and (taken := use_up(s, "backup")):
        yield "a backup is taken", taken._replace(backup=s.row)
    if s.backup != s.row and (restored := use_up(s, "restore")):
        fooled = tuple(each._replace(is_fooled=True) for each in s.workers)
        what = "a backup is restored" if s.backup else "the row is lost"
        yield what, restored._replace(row=s.backup, workers=fooled, excused=True)
    if s.is_old and (forgotten := use_up(s, "forget")):
        for key, answer in s.keys:
            keys = tuple(each for each in s.keys if each != (key, answer))
            yield f"Stripe forgets the key of {key}", forgotten._replace(keys=keys, excused=True)


# ---------------------------------------------------------------- Stripe


def create(s: State, generation: int) -> Iterator[Executed]:
    """Creates a PaymentIntent, unconfirmed."""
    if s.left.refuse:
        yield "refused", s, "refused"
    else:
        yield f"created {len(s.intents)}", s._replace(intents=(*s.intents, Intent(generation))), len(s.intents)


def confirm(s: State, index: int, attempt: int) -> Iterator[Executed]:
    """A PaymentIntent makes at most one successful charge, for ever."""
    if not s.intents[index].is_open:
        yield "unexpected state", s, "unexpected state"
        return
    for status in ("succeeded", "declined", "requires_action", "processing"):
        charge = _new_charge(s) if status in ("declined", "processing") else s.intents[index].charge
        after = _becomes(s, index, status, attempt=attempt, charge=charge)
        yield status, after._replace(said=s.said | {f"asked {attempt}"}), status


def cancel(s: State, index: int, reason: str) -> State:
    """Stripe decides: one that succeeded, is being processed or is canceled stays what it is."""
    return _becomes(s, index, reason) if s.intents[index].is_open else s


def send_with_key(
    s: State, key: Key, execute: Callable[[State], Iterator[Executed]]
) -> Iterator[tuple[str, State, str | int, bool]]:
    """A request with an idempotency key: what happens, the state after it, the answer, and whether it is a replay."""
    if (stored := dict(s.keys).get(key)) is not None:
        yield f"a replay of {stored}", s, stored, True
        return
    for what, after, answer in execute(s):
        yield what, _store(after, key, answer), answer, False
    if failed := use_up(s, "error"):
        later = failed._replace(late=tuple(sorted({*s.late, key[:3]}, key=str)))
        executed = [(f"500, {what}", after) for what, after, _ in execute(failed)]
        for what, after in (("500, not executed", failed), ("500, executed later", later), *executed):
            yield what, after, "500", False
            yield f"{what}, stored", _store(after, key, "500"), "500", False
    if refused := use_up(s, "refusal"):
        yield "refused, stored", _store(refused, key, "refusal"), "refusal", False


def _store(s: State, key: Key, answer: str | int) -> State:
    return s._replace(keys=tuple(sorted((*s.keys, (key, answer)), key=str)))


def _becomes(s: State, index: int, status: str, *, excused: bool = False, **changes: int) -> State:
    changed = s.intents[index]._replace(status=status, **changes)
    intents = (*s.intents[:index], changed, *s.intents[index + 1 :])
    return s._replace(intents=intents, excused=s.excused or excused)


def _new_charge(s: State) -> int:
    return 1 + max(each.charge for each in s.intents)


# ---------------------------------------------------------------- small things


def move_to(s: State, w: Worker, at: str, **changes: object) -> State:
    """The worker continues with its next step."""
    moved = w._replace(at=at, **changes)  # type: ignore[arg-type]
    return s._replace(workers=tuple(moved if each.id == w.id else each for each in s.workers))


def finish(s: State, w: Worker) -> State:
    """The worker has ended, or crashed. Its lease is free: any lease may expire at any moment."""
    row, backup = (
        each._replace(lease_owner=0) if each and each.lease_owner == w.id else each for each in (s.row, s.backup)
    )
    return s._replace(row=row, backup=backup, workers=tuple(each for each in s.workers if each.id != w.id))


def use_up(s: State, what: str) -> State | None:
    """The state after this has happened once more; None if its bound is reached."""
    left: int = getattr(s.left, what)
    return s if left == ANY else s._replace(left=s.left._replace(**{what: left - 1})) if left else None
