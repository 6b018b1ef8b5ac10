"""One order's timeline: what happened ─► moments, each in a lane, and the leases of the row. Pure.

    customer | order service | queue | worker A, B, … | refund worker | webhook, reconcile | Stripe

It is what `ops explain` prints, log lines included. A line has milliseconds, and stands for the event that it
tells. Stripe's objects have whole seconds: what Stripe did is put before the first line that knows of it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from lab.console.lines import CLAIMED, ENDS, FINALIZED, TIMED_OUT, WAITS, Line
from ops.explain import CREATE, Event

CUSTOMER, ORDERS, QUEUE, STRIPE = "customer", "order service", "queue", "Stripe"
REFUNDS, REPAIRS = "refund worker", "webhook, reconcile"
"""These two are shown if one of them did something."""
WORKERS = ("worker A", "worker B", "workers C, D, …")
"""Lanes of workers. If there are more, they share the last one, so that the page stays readable."""
GAP_SECONDS = 2.0
"""From then on the page says how much time has passed between two moments."""
SAME_SECONDS = 2.0
"""A line this close to an event tells the same."""
_LANES = {
    **dict.fromkeys(("orders_api", "update_order", "orders"), ORDERS),
    **dict.fromkeys(("publish_events", "republish"), QUEUE),
    **dict.fromkeys(("stripe_webhook", "reconcile"), REPAIRS),
    "refund_charge": REFUNDS,
    "stripe": STRIPE,
}


class Kind(StrEnum):
    """How a moment is shown."""

    PLAIN = "plain"
    GRANTED = "granted"
    REFUSED = "refused"
    """A duplicate that does no work: as it should be."""
    REPLAYED = "replayed"
    FAILED = "failed"
    """A person has to act."""
    MONEY = "money"
    WAITS = "waits"
    """It failed, or could not be done yet, and is done again."""
    EXPECTED = "expected"
    """It has not happened yet."""


_KINDS = {
    **dict.fromkeys((CLAIMED, FINALIZED), Kind.GRANTED),
    **dict.fromkeys(("order updated", "refund updated", "refund told"), Kind.GRANTED),
    **dict.fromkeys((TIMED_OUT, WAITS, "payment not finished", "refund not finished"), Kind.WAITS),
    "duplicate": Kind.REFUSED,
    "payment held": Kind.FAILED,
    "response replayed": Kind.REPLAYED,
    "CHARGED": Kind.MONEY,
    "DISPUTED": Kind.FAILED,
}
"""By how an event, or a line's message, begins."""


@dataclass(frozen=True)
class Moment:
    """Something that happened, or will: a row of the timeline."""

    at: float
    lane: str
    what: str
    kind: Kind = Kind.PLAIN
    details: Mapping[str, Any] = field(default_factory=dict)
    """The item, message, request or line, as it was."""


@dataclass(frozen=True)
class Lease:
    """A worker's lease of the order's row."""

    lane: str
    begins: float
    ends: float
    is_expired: bool
    """Its worker died without ending it."""


@dataclass(frozen=True)
class Timeline:
    """What the page shows."""

    lanes: Sequence[str]
    moments: Sequence[Moment]
    """The earliest first."""
    leases: Sequence[Lease]

    @property
    def expected(self) -> Moment | None:
        """What comes next, if the log says when."""
        return next((each for each in self.moments if each.kind is Kind.EXPECTED), None)

    def gap_before(self, index: int) -> float:
        """The seconds since the moment before, if they are worth saying; else 0."""
        seconds = self.moments[index].at - self.moments[max(0, index - 1)].at
        return seconds if seconds >= GAP_SECONDS else 0

    def leased(self, index: int) -> set[str]:
        """The lanes of the workers that have the lease at this moment."""
        at = self.moments[index].at
        return {lease.lane for lease in self.leases if lease.begins <= at <= lease.ends}


def timeline(
    events: Sequence[Event], now: float, *, hidden_seconds: int = 0, pressed: Sequence[tuple[float, str]] = ()
) -> Timeline:
    """What happened, in lanes.

    Args:
        hidden_seconds: the payments queue's visibility timeout.
        pressed: the console's buttons, and when.
    """
    lines = [line for event in events if (line := _line_of(event))]
    workers = _worker_lanes(lines)
    leases = list(_leases(lines, workers, now))
    moments = [
        *(Moment(at, CUSTOMER, f"you: {label}") for at, label in pressed),
        *(_moment(event, lines, workers) for event in events if not _is_told(event, lines)),
        *_deliveries(lines),
        *(Moment(each.ends, each.lane, "lease expired", Kind.WAITS) for each in leases if each.is_expired),
        *_expected(lines, hidden_seconds, now),
    ]
    used = {each.lane for each in moments}
    others = [lane for lane in (REFUNDS, REPAIRS) if lane in used]
    lanes = [CUSTOMER, ORDERS, QUEUE, *sorted({*workers.values()} or {WORKERS[0]}), *others, STRIPE]
    return Timeline(lanes, sorted(moments, key=lambda moment: (moment.at, lanes.index(moment.lane))), leases)


def _line_of(event: Event) -> Line | None:
    return Line(event.at, event.line) if "service" in event.line else None


def _worker_lanes(lines: Sequence[Line]) -> dict[str, str]:
    """A lane for each execution environment that handled the order's messages, in the order of their appearance."""
    streams = dict.fromkeys(line.worker for line in lines if line.service == "charge_order")
    return dict(zip_longest(streams, WORKERS[: len(streams)], fillvalue=WORKERS[-1]))


# ---------------------------------------------------------------- what happened


def _moment(event: Event, lines: Sequence[Line], workers: Mapping[str, str]) -> Moment:
    otherwise, what = Kind.FAILED if event.line.get("level") == "ERROR" else Kind.PLAIN, _short(event.what)
    kind = next((kind for start, kind in _KINDS.items() if event.what.startswith(start)), otherwise)
    if line := _line_of(event):
        lane = workers[line.worker] if line.service == "charge_order" else _LANES.get(line.service, ORDERS)
        if line.verb:
            lane, what = STRIPE, what.removeprefix("stripe request: ").replace(line.fields["endpoint"], line.verb)
            answered = Kind.PLAIN if line.fields.get("status") == "2xx" else Kind.WAITS
            kind = Kind.REPLAYED if line.is_replay else answered
        elif line.message == WAITS:
            lane = QUEUE
        elif "the row becomes" in line.message:  # A webhook or reconcile has finalized it.
            kind = Kind.GRANTED
        return Moment(event.at, lane, what, kind, event.line)
    lane = _LANES.get(event.where, next(iter(workers.values()), WORKERS[0]))
    return Moment(_time_of(event, lines), lane, what, kind, {"what": event.what})


def _time_of(event: Event, lines: Sequence[Line]) -> float:
    """Where an event with whole seconds is shown: Stripe's before the first line that knows of it."""
    if event.where == "stripe":
        told = (line for line in lines if line.at > event.at and line.fields.get("status") != "none")
        knows = [
            line.at for line in told if line.service == "stripe_webhook" or line.fields.get("endpoint") == event.request
        ]
        return min([event.at + 0.999, *knows]) - 0.0002
    return event.at


def _is_told(event: Event, lines: Sequence[Line]) -> bool:
    """Whether a line tells the same, to the millisecond. A charge or refund at Stripe is always shown."""
    near = (line.fields.get("endpoint") for line in lines if abs(line.at - event.at) <= SAME_SECONDS)
    return event.request == CREATE and CREATE in near


def _short(text: str) -> str:
    """Ids by their beginning; the details have all of them."""
    return re.sub(r"\b(ord|pi|ch|rfd|re)_(\w{4})\w{8,}", r"\1_\2…", text)


def _deliveries(lines: Sequence[Line]) -> Iterator[Moment]:
    first = {line.delivery: line for line in reversed(lines) if line.service in ("charge_order", "refund_charge")}
    for delivery, line in first.items():
        if delivery:
            message_id, count = delivery
            what = f"message {message_id[:8]} delivered" + (f", receive count {count}" if count > 1 else "")
            details = {"message_id": message_id, "receive_count": count}
            yield Moment(line.at, QUEUE, what, Kind.PLAIN if count == 1 else Kind.WAITS, details)


def _leases(lines: Sequence[Line], workers: Mapping[str, str], now: float) -> Iterator[Lease]:
    """From each claim to its end: finalized, released, or expired because its worker died."""
    for index, line in enumerate(lines):
        if line.message == CLAIMED:
            expires = float(line.fields["lease_expires_at"])
            end = next((each.at for each in lines[index + 1 :] if _ends(each, line)), None)
            yield Lease(workers[line.worker], line.at, end or expires, end is None and expires <= now)


def _ends(line: Line, claim: Line) -> bool:
    return line.message in ENDS and (line.worker, line.delivery) == (claim.worker, claim.delivery)


def _expected(lines: Sequence[Line], hidden_seconds: int, now: float) -> Iterator[Moment]:
    """When a message comes again: a worker has returned it to its queue for a time, or died with it."""
    died = [line.at for line in lines if line.message == TIMED_OUT]
    for line in lines:
        waits = line.fields.get("wait_seconds", 0) if line.message == WAITS else 0
        if (
            line.message == CLAIMED
            and any(at > line.at for at in died)
            and not any(_ends(each, line) for each in lines)
        ):
            waits = hidden_seconds
        if line.delivery and line.at + waits > now:
            message_id, _ = line.delivery
            what = f"message {message_id[:8]} is visible again"
            yield Moment(line.at + waits, QUEUE, what, Kind.EXPECTED, {"message_id": message_id, "seconds": waits})
