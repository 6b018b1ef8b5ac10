"""A person who resolves a payment that needs review (ops/resolver.py): reads the row, then Stripe, then writes on the
row's revision. They never confirm, and say nothing that Stripe does not.

A payment needs review once Stripe has refused its requests as invalid for an hour (charge_rules.py); messages then end.
"""

from collections.abc import Iterator

from lab.specification.protocol import Point, Rules, write_row
from lab.specification.states import Row, State, Step, Worker, cancel, finish, move_to

RESOLUTIONS = ("retry", "cancel", "paid")


def read_row(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """The row first: what Stripe shows is newer than the revision that is written on."""
    row = (s.row or Row(0))._replace(lease_owner=0)
    if row.state != "NEEDS_REVIEW":
        yield "finds nothing to review", finish(s, w)
        return
    for resolution in [w.outcome] if w.outcome else RESOLUTIONS:
        yield f"says {resolution}", move_to(s, w, "decide", row=row, outcome=resolution, is_fooled=False)


def _decide(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """Everything of the order at Stripe. What is open beside the row's own PaymentIntent is canceled first."""
    statuses = [intent.status for intent in s.intents]
    succeeded = [index for index, status in enumerate(statuses) if status == "succeeded"]
    keep = succeeded[0] if w.outcome == "paid" and succeeded else w.row.intent
    others = [index for index, intent in enumerate(s.intents) if intent.is_open and index != keep]
    is_canceled = "by_customer" in statuses or w.row.cancel_requested
    if w.outcome == "paid" and "paid without Stripe's word" in broken:
        yield "believes it", move_to(s, w, "resolve", intent=max(w.row.intent, 0))
    elif "processing" in statuses or (w.outcome == "retry" and is_canceled) or (w.outcome == "paid") != bool(succeeded):
        yield "is refused", finish(s, w)
    elif others:
        yield f"cancels {others[0]}", move_to(cancel(s, others[0], "abandoned"), w, "read the row")
    else:
        accepted = tuple(index for index, status in enumerate(statuses) if status == "by_hand")
        yield "may resolve it", move_to(s, w, "resolve", intent=keep, accepted=accepted)


def _resolve(s: State, w: Worker, broken: Rules) -> Iterator[Step]:
    """On the revision, which a restored table may have given out again, and on the state."""
    row = s.row or Row(0)
    is_same = row._replace(lease_owner=0) == w.row or "resolved on any revision" in broken
    if not is_same and not (w.is_fooled and row.state == "NEEDS_REVIEW"):
        yield "finds the row changed", finish(s, w)
    elif w.outcome == "paid":
        yield from write_row(s, w._replace(outcome="SUCCEEDED"), row._replace(intent=w.intent))
    elif w.outcome == "cancel" and "canceled by a person's word" in broken:
        said = s._replace(said=s.said | {"to cancel"})
        yield from write_row(said, w._replace(outcome="CANCELED"), row)
    else:
        is_cancel = w.outcome == "cancel"
        accepted = row.accepted if is_cancel else w.accepted
        reopened = row._replace(
            state="PENDING",
            lease_owner=0,
            is_listed=True,
            cancel_requested=row.cancel_requested or is_cancel,
            accepted=accepted,
        )
        still_said = s.said - {f"stopped {index}" for index in accepted} | ({"to cancel"} if is_cancel else set())
        after = s._replace(row=reopened, said=still_said)
        yield "puts the row back to PENDING", finish(after, w)


POINTS: dict[str, Point] = {"read the row": read_row, "decide": _decide, "resolve": _resolve}
