"""What works on the row without its lease: how a cancellation begins, the reconciler, webhooks. They never confirm."""

from collections.abc import Iterator

from lab.specification.protocol import Point, Rules, claim, is_its_decline, is_stopped_by_hand, write_row
from lab.specification.states import Row, State, Step, Worker, cancel, finish, move_to


def request_cancel(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """A cancellation first leaves its request in the row, for whoever holds it: that takes no lease."""
    row = s.row or Row()
    if row.is_unpaid:
        row = row._replace(cancel_requested=True, is_listed=True)
        yield "writes the request to cancel", move_to(s._replace(row=row, said=s.said | {"to cancel"}), w, "claim")
    else:
        yield f"finds it {row.state}", finish(s, w)


def reconcile(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Finishes a cancellation that died; reads the row for its PaymentIntent, or for one that an event says succeeded.

    It finds rows by an index: of those that are DECLINED, only where cancellation was requested since."""
    if s.row and s.row.cancel_requested and s.row.is_unpaid and s.row.is_listed:
        yield from claim(s, w, broken)
    row = s.row or Row(0)
    for index, intent in enumerate(s.intents if row.state not in ("SUCCEEDED", "CANCELED") else ()):
        is_unfinished = row.intent == index and row.state in ("PENDING", "REQUIRES_ACTION") and not row.cancel_requested
        if intent.status == "succeeded" or is_unfinished:
            read = row._replace(lease_owner=0)
            yield f"reads the row for {index}", move_to(s, w, "compare", row=read, intent=index, is_fooled=False)
    yield "has nothing to do", finish(s, w)


def _compare(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Late truth wins. What waits for the customer is decided by the bank, or abandoned when nobody acts in time; what
    nobody works on is finalized if Stripe has decided it."""
    intent, state = s.intents[w.intent], w.row.state if w.row.intent == w.intent else ""
    status, outcome = intent.status, ""
    if status == "succeeded":
        outcome = "SUCCEEDED"
    elif status == "by_customer" and state in ("PENDING", "REQUIRES_ACTION"):
        outcome = "CANCELED"
    elif state in ("PENDING", "REQUIRES_ACTION") and is_stopped_by_hand(w.row, w.intent, intent):
        outcome = "NEEDS_REVIEW"
    elif state == "REQUIRES_ACTION" and status in ("declined", "abandoned", "by_stripe", "given_up"):
        outcome = "DECLINED"
    elif state == "PENDING" and status == "requires_action" and intent.attempt == w.row.attempt:
        outcome = "REQUIRES_ACTION"
    elif state == "PENDING" and status == "declined" and is_its_decline(w, intent, broken):
        outcome = "DECLINED"
    if outcome:
        yield f"compares: {status}", move_to(s, w, "correct", outcome=outcome)
    elif state == "REQUIRES_ACTION" and status == "requires_action":
        yield f"compares: {status}", move_to(s, w, "give up")
    else:
        yield f"compares: {status}", finish(s, w)


def _give_up(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    yield "cancels what nobody authenticates", cancel(move_to(s, w, "compare"), w.intent, "abandoned")


def _correct(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """On the revision of the row that it read, which a restored table may have given out again; 0 is no row."""
    row, intent = s.row or Row(0), s.intents[w.intent]
    is_same = row._replace(lease_owner=0) == w.row or "reconciled without the revision" in broken
    if is_same or (w.is_fooled and row.state != "SUCCEEDED"):
        charge = intent.charge if w.outcome in ("DECLINED", "REQUIRES_ACTION") else 0
        row = row._replace(attempt=row.attempt or 1, intent=w.intent, declined_charge=charge)
        yield from write_row(s, w, row._replace(generation=intent.generation))
    if not is_same:
        yield "finds the row changed", finish(s, w)


POINTS: dict[str, Point] = {
    "compare": _compare, "give up": _give_up, "correct": _correct,
}  # fmt: skip
STARTS: dict[str, Point] = {"delivery": claim, "cancel": request_cancel, "reconciler": reconcile}
