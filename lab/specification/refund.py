"""The refund protocol: staff, the order, the worker, the webhook and Stripe. docs/protocol.md, "The refund".

    read the row ─► list ─┬─► tell: it is there, or it was refused
                          └─► write that it is sent ─► send ─► tell, or write the answer

A state is a value; a step yields every state that can follow. Time passes in thirds of a day: Stripe remembers a key
for three, and a worker lives less than one. Stripe executes a request in the third in which it was sent, or never. A
lost answer needs no step of its own: it is a crash after the request. `broken` names rules that are left out.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

from lab.specification.explore import Rules, replaced, use

REMEMBERED = 3
MANY = 2  # So many requests without an answer, or more.
SENT_AGAIN = 2  # For so long a delivery may begin that sends it again: it may end in the next third.
BY_HAND = -1
RANK = {"PENDING": 0, "REFUSED": 1, "SUCCEEDED": 2, "FAILED": 3}
"""The states of a refund at its order. REFUSED is shown as FAILED, too, but Stripe has no such refund."""


class Left(NamedTuple):
    """What was paid and is asked for, how Stripe behaves, and how often what may happen can happen."""

    paid: int = 2
    amounts: tuple[int, ...] = (1, 1)
    messages: tuple[int, ...] = (0, 0, 1)
    is_successor: bool = True  # A refund is requested after the one before was told as failed; else at any time.
    ticks: int = 0
    disputed: bool = False  # At first. Stripe refuses all refunds meanwhile.
    stores_refusals: bool = True  # Stripe replays a refusal, as it replays a 500.
    counts_failed: bool = False  # Stripe leaves a failed refund in amount_refunded.
    lag: int = 1  # For how many thirds of a day the list may lack a refund.
    by_hand: int = 1  # The amount that a person refunds.
    error: int = 0  # A stored 500, or no answer: executed now, later or never.
    not_now: int = 0  # An answer, such as too low a balance: nothing is made, refused or stored.
    duplicate: int = 0  # A message that was acknowledged is delivered again.
    person: int = 0  # Refunds by hand, opens or ends a dispute.
    returned: int = 0  # A bank returns the money: the refund fails.
    restore: int = 0  # The order is put back from a backup.


class Refund(NamedTuple):
    """One that Stripe has made."""

    of: int
    amount: int
    made: int
    failed: bool = False


class Key(NamedTuple):
    since: int
    answer: str  # made, error, refused


class Sent(NamedTuple):
    """What the payment's row says of a refund."""

    since: int = -9  # When the first request was sent that Stripe may have executed.
    unanswered: int = 0
    is_refused: bool = False  # By Stripe.

    def is_open(self, s: "State") -> bool:
        """Its key is known for three thirds; then the list may lack what was sent in the last of them."""
        return s.time - self.since < REMEMBERED - 1 + s.left.lag


class Worker(NamedTuple):
    """The deliveries of one message, one after the other."""

    of: int
    at: str = "unrequested"
    sent: Sent = Sent()  # As the row said.
    outcome: str = ""
    is_behind: bool = False  # The row has been written since it was read.
    is_old: bool = False  # A third of a day has ended since its claim: it ends before the next one does.


class Message(NamedTuple):
    """An outcome with the total and the revision of the payment's row; or only these (BY_HAND)."""

    of: int
    state: str
    total: int
    revision: int


class Order(NamedTuple):
    refunds: tuple[str, ...]  # The state of each that was requested.
    total: int = 0
    revision: int = 0


class Row(NamedTuple):
    """The payment's."""

    sent: tuple[Sent, ...]
    total: int = 0
    revision: int = 0  # Of the total.


class State(NamedTuple):
    left: Left
    order: Order
    workers: tuple[Worker, ...]
    keys: tuple[Key | None, ...]
    row: Row
    disputed: bool
    time: int = 0
    backup: Order | None = None
    refunds: tuple[Refund, ...] = ()
    late: tuple[tuple[int, bool], ...] = ()  # May still be executed; whether its key already replays a 500.
    events: frozenset[int] = frozenset()  # Of refunds of ours, which the webhook has not handled yet.
    messages: frozenset[Message] = frozenset()
    wrong: str = ""


Step = tuple[str, State]


def first(left: Left) -> State:
    keys, row = (None,) * len(left.amounts), Row((Sent(),) * len(left.amounts))
    workers = tuple(Worker(of, "unrequested" if of else "waits") for of in left.messages)
    return State(left, Order(("PENDING",)), workers, keys, row, left.disputed)


def violation(s: State) -> str:
    """What the promise forbids, if it is so."""
    made = [sum(refund.of == of for refund in s.refunds) for of in range(len(s.left.amounts))]
    succeeded = [refund for refund in s.refunds if not refund.failed]
    if sum(refund.amount for refund in succeeded) > s.left.paid:
        return "more was refunded than was paid"
    if max(made) > 1:
        return "a refund was made twice"
    if s.left.is_successor and sum(refund.of != BY_HAND for refund in succeeded) > 1:
        return "a refund was made though told as failed, and its successor, too"
    if any(told == "SUCCEEDED" and not made[of] for of, told in enumerate(s.order.refunds)):
        return "told SUCCEEDED, but Stripe has no such refund"
    return s.wrong


def is_end(s: State) -> bool:
    """Nothing is left to happen, and the order shows what Stripe shows; or a bound: a refund waits for a day to end."""
    for of in pending(s.order):
        key, sent = s.keys[of], s.row.sent[of]
        waits = sent.is_open(s) and (sent.is_refused or s.time - sent.since >= SENT_AGAIN)
        if s.time == s.left.ticks and ((key and key.answer == "error") or waits):
            return True
    shown = {refund.of: "FAILED" if refund.failed else "SUCCEEDED" for refund in s.refunds}
    is_told = all(told == shown.get(of, "REFUSED") for of, told in enumerate(s.order.refunds))
    is_quiet = not (s.late or s.events or s.messages) and all(w.at in ("unrequested", "done") for w in s.workers)
    return is_quiet and is_told and s.order.total == s.row.total == amount_refunded(s)


def amount_refunded(s: State) -> int:
    return sum(refund.amount for refund in s.refunds if not refund.failed or s.left.counts_failed)


def pending(order: Order) -> list[int]:
    return [of for of, told in enumerate(order.refunds) if told == "PENDING"]


def is_refused(s: State, amount: int) -> bool:
    return s.disputed or amount_refunded(s) + amount > s.left.paid


def steps(s: State, broken: Rules) -> Iterator[Step]:
    """Everything that can happen next."""
    yield from at_stripe(s)
    yield from at_order(s, broken)
    if s.row.total != amount_refunded(s):
        yield "the payment's row is synced", told(s, BY_HAND, "")
    for of in s.events:
        outcome = next("FAILED" if refund.failed else "SUCCEEDED" for refund in s.refunds if refund.of == of)
        after = s._replace(events=s.events - {of})
        is_ignored = "Stripe's events are ignored" in broken
        yield f"the webhook tells {of} {outcome}", after if is_ignored else told(after, of, outcome)
    for place, w in enumerate(s.workers):
        if w.at == "waits":
            yield f"{w.of} is claimed", to(s, place, w, "list", sent=s.row.sent[w.of])
        elif w.at == "done":
            if w.of in pending(s.order) and "what is PENDING is not republished" not in broken:
                yield f"{w.of} is republished", back(s, place, w)
            if again := use(s, "duplicate"):
                yield f"{w.of} is delivered again", back(again, place, w)
        elif w.at != "unrequested":
            yield f"{w.of} crashes", back(s, place, w)
            yield from ((f"{w.of} {label}", after) for label, after in POINTS[w.at](s, place, w, broken))


def at_stripe(s: State) -> Iterator[Step]:
    """What happens there without a request of ours."""
    if s.time < s.left.ticks and not s.late and not any(w.is_old for w in s.workers):
        aged = tuple(w._replace(is_old=True) if w.at in POINTS else w for w in s.workers)
        keys = tuple(key if key and s.time + 1 - key.since < REMEMBERED else None for key in s.keys)
        yield "time passes", s._replace(time=s.time + 1, workers=aged, keys=keys)
    for place, (of, is_stored) in enumerate(s.late):
        rest = s._replace(late=s.late[:place] + s.late[place + 1 :])
        yield f"a late request for {of} is dropped", rest
        if (is_stored or s.keys[of] is None) and not is_refused(s, s.left.amounts[of]):
            yield f"a late request makes {of}", made(rest if is_stored else answered(rest, of, "made"), of)
    for place, refund in enumerate(s.refunds):
        if not refund.failed and (after := use(s, "returned")):
            after = after._replace(refunds=replaced(s.refunds, place, refund._replace(failed=True)))
            yield f"the bank returns {refund.of}", after._replace(events=s.events | {refund.of} - {BY_HAND})
    if after := use(s, "person"):
        yield "a dispute ends" if s.disputed else "a dispute opens", after._replace(disputed=not s.disputed)
        if not is_refused(s, s.left.by_hand):
            yield "a refund by hand", made(after, BY_HAND)


def made(s: State, of: int) -> State:
    refund = Refund(of, s.left.by_hand if of == BY_HAND else s.left.amounts[of], s.time)
    return s._replace(refunds=(*s.refunds, refund), events=s.events | {of} - {BY_HAND})


def answered(s: State, of: int, answer: str) -> State:
    """Stored under the key."""
    return s._replace(keys=replaced(s.keys, of, Key(s.time, answer)))


def at_order(s: State, broken: Rules) -> Iterator[Step]:
    """Requests; messages, which arrive in any order; backups."""
    order, of = s.order, len(s.order.refunds)
    may = of < len(s.left.amounts) and (not s.left.is_successor or order.refunds[-1] in ("REFUSED", "FAILED"))
    if may and s.left.amounts[of] <= left_to_refund(s, broken):
        yield f"{of} is requested", requested(s, of)
    for message in s.messages:
        label = f"outcome {message.state} of {message.of}" if message.state else "total"
        for before in (s._replace(messages=s.messages - {message}), use(s, "duplicate")):
            if before:
                yield f"the {label} arrives", before._replace(order=merged(s, message, broken))
        if "the total is written later" in broken:
            half = merged(s, message, broken)._replace(total=order.total, revision=order.revision)
            yield f"the {label} arrives by half", s._replace(order=half)
    if s.left.restore and s.backup is None:
        yield "a backup is taken", s._replace(backup=order)
    if s.backup and (after := use(s, "restore")):
        after = after._replace(order=s.backup, backup=None)
        if "outcomes are not sent again" not in broken:  # By the runbook's command, with the row's total.
            again = {refund.of for refund in s.refunds} - {BY_HAND}
            after = told(after._replace(events=s.events | again), BY_HAND, "")
        yield "the order is put back", after


def left_to_refund(s: State, broken: Rules = frozenset()) -> int:
    """As the order shows it, and accepts it. It may be too little until an outcome arrives; then even less than 0."""
    waiting = pending(s.order) if "what is pending is left, too" not in broken else []
    return s.left.paid - s.order.total - sum(s.left.amounts[of] for of in waiting)


def requested(s: State, of: int) -> State:
    """Accepted. Wrong if the order could know better: of what it was told succeeded, or of Stripe's total."""
    order, amounts = s.order, s.left.amounts
    after = s._replace(
        order=order._replace(refunds=(*order.refunds, "PENDING")),
        workers=tuple(w._replace(at="waits") if w.of == of and w.at == "unrequested" else w for w in s.workers),
    )
    shown = {refund.of for refund in s.refunds if not refund.failed}
    if order.revision == s.row.revision and s.row.total == amount_refunded(s):
        taken = amount_refunded(s) + sum(amounts[each] for each in pending(after.order) if each not in shown)
    else:
        taken = sum(
            amounts[each] for each, told in enumerate(after.order.refunds) if told == "PENDING" or each in shown
        )
    return after._replace(wrong="more was accepted than is left") if taken > s.left.paid else after


def merged(s: State, message: Message, broken: Rules) -> Order:
    """One transaction: the refund's state by rank, the sum of what is pending, the total by revision."""
    order = s.order
    if message.revision >= order.revision or "the total of an older revision" in broken:
        order = order._replace(total=message.total, revision=message.revision)
    if 0 <= message.of < len(order.refunds):
        before = order.refunds[message.of]
        if RANK[message.state] > RANK[before] or "outcomes by arrival" in broken:
            order = order._replace(refunds=replaced(order.refunds, message.of, message.state))
    return order


def to(s: State, place: int, w: Worker, at: str, **known: Any) -> State:
    """The worker continues at this point, and knows no more than that. Workers of one refund are alike."""
    after = Worker(w.of, at, is_old=w.is_old and at in POINTS, **known)
    return s._replace(workers=tuple(sorted(replaced(s.workers, place, after))))


def back(s: State, place: int, w: Worker) -> State:
    """The message is delivered again."""
    return to(s, place, w, "waits")


def told(s: State, of: int, outcome: str) -> State:
    """The row is synced first: the outcome carries its total and its revision."""
    if s.row.total != amount_refunded(s):
        s = written(s, total=amount_refunded(s), revision=s.row.revision + 1)
    return s._replace(messages=s.messages | {Message(of, outcome, s.row.total, s.row.revision)})


def written(s: State, **changes: Any) -> State:
    """The payment's row; whoever has read it before is behind now."""
    workers = tuple(w._replace(is_behind=True) if w.at in POINTS else w for w in s.workers)
    return s._replace(row=s.row._replace(**changes), workers=workers)


def look(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """Read the list, which may lack young refunds."""
    waits = "sent while the list may lack it" not in broken
    young = [refund for refund in s.refunds if s.time - refund.made < s.left.lag]
    for hidden in (each for count in range(len(young) + 1) for each in combinations(young, count)):
        listed = [refund for refund in s.refunds if refund not in hidden]
        own = [refund for refund in listed if refund.of == w.of and "its own is not looked up" not in broken]
        if own:
            yield "is found", to(s, place, w, "tell", outcome="FAILED" if own[-1].failed else "SUCCEEDED")
        elif not w.sent.is_refused and w.sent.is_open(s) and s.time - w.sent.since >= SENT_AGAIN and waits:
            yield "is not found, and may be made", back(s, place, w)
        elif not w.sent.is_refused:
            yield "is not found", to(s, place, w, "write", is_behind=w.is_behind)
        elif "a refused one is sent" in broken and w.of not in pending(s.order):
            yield "is sent again", to(s, place, w, "write", is_behind=w.is_behind)
        elif w.sent.is_open(s) and "FAILED is told though a request is open" not in broken:
            yield "is not found, refused, and may still be made", back(s, place, w)
        else:
            yield "is not found, and refused", to(s, place, w, "tell", outcome="REFUSED")


def write(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """Write that it is sent, on the row's revision: nobody sends what another worker has been refused meanwhile."""
    if "sent without a write" in broken:
        yield "is to be sent", to(s, place, w, "send")
    elif w.is_behind and "written on any revision" not in broken:
        yield "finds another row", back(s, place, w)
    else:
        before = s.row.sent[w.of]
        sent = before._replace(unanswered=min(MANY, before.unanswered + 1)) if before.is_open(s) else Sent(s.time, 1)
        yield "is written as sent", to(written(s, sent=replaced(s.row.sent, w.of, sent)), place, w, "send")


def send(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """Under the one key. An error is replayed until the key is forgotten."""
    known = None if "a new key each time" in broken else s.keys[w.of]
    if known and known.answer == "error":
        yield "is sent: a replay of the error", back(s, place, w)
    elif known and known.answer == "made":
        yield "is sent: a replay", to(s, place, w, "tell", outcome="SUCCEEDED")
    elif known or is_refused(s, s.left.amounts[w.of]):
        after = answered(s, w.of, "refused") if s.left.stores_refusals and not known else s
        yield "is sent: refused", to(after, place, w, "write the answer", outcome="REFUSED")
    else:
        if after := use(s, "not_now"):
            yield "is sent: not now", to(after, place, w, "write the answer")
        yield "is sent: made", to(answered(made(s, w.of), w.of, "made"), place, w, "tell", outcome="SUCCEEDED")
        if failed := use(s, "error"):
            for is_stored in (True, False):
                after = failed._replace(late=(*s.late, (w.of, is_stored)))
                after = answered(after, w.of, "error") if is_stored else after
                yield f"is sent: {'500' if is_stored else 'no answer'}, executed later", back(after, place, w)
            yield "is sent: 500, executed", back(answered(made(failed, w.of), w.of, "error"), place, w)


def write_answer(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    """This request has had its answer, which says nothing of another one. What is refused is never sent again."""
    sent, answers_all = s.row.sent[w.of], "an answer is one to every request" in broken
    is_refused = sent.is_refused or w.outcome == "REFUSED"
    is_answered, others = sent.unanswered <= 1 or answers_all, sent.unanswered - (sent.unanswered < MANY)
    sent = Sent(is_refused=is_refused) if is_answered else Sent(sent.since, others, is_refused)
    if "a refusal is not written" in broken:
        yield "is told REFUSED", to(s, place, w, "tell", outcome="REFUSED")
    else:
        yield "has its answer written", back(written(s, sent=replaced(s.row.sent, w.of, sent)), place, w)


def tell(s: State, place: int, w: Worker, broken: Rules) -> Iterator[Step]:
    yield f"is told {w.outcome}", to(told(s, w.of, w.outcome), place, w, "done")


POINTS = {"list": look, "write": write, "send": send, "write the answer": write_answer, "tell": tell}
