"""One order's timeline: its story and the lines of the log ─► moments, each in a lane, and the leases of the row. Pure.

    customer | order service | queue | worker A, B, … | refund worker | webhook, reconcile | Stripe

A line has milliseconds, and stands for the event of the story that it tells; the other events are shown as `explain`
prints them. What only Stripe knows has seconds: it is at the end of its second, unless the request that caused it has a
line.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from string import ascii_uppercase
from typing import Any

from console.lines import DUPLICATE, ENDS, HELD, LEASED, STRIPE_REQUEST, TIMED_OUT, Line
from ops.story import CONFIRM, REFUND, Event, Story

CUSTOMER, ORDERS, QUEUE, STRIPE = "customer", "order service", "queue", "Stripe"
REFUNDS = "refund worker"
REPAIRS = "webhook, reconcile"
"""What is ours, and follows Stripe. These two are shown if one of them did something."""
WORKERS_MAX = 3
"""Lanes of workers. If there are more, they share the last one, so that the page stays readable."""
TOGETHER_SECONDS = 0.05
"""Moments this close share a row, if each is to the right of the one before."""
GAP_SECONDS = 2.0
"""From then on the page says how much time has passed between two moments."""
SAME_SECONDS = 2.0
"""A line this close to an event tells the same."""
ANSWER_SECONDS = 30
"""How long Stripe takes at most to answer the request that charges."""
_LANES = {
    "orders_api": ORDERS,
    "update_order": ORDERS,
    "publish_events": QUEUE,
    "stripe_webhook": REPAIRS,
    "reconcile": REPAIRS,
    "refund_charge": REFUNDS,
    "republish": QUEUE,
}
_PLACED, _CLAIMED, _FINALIZED = "order placed", "payment claimed", "payment finalized"
_SYNCED = "the row becomes"
"""What a webhook's or reconcile's line says if it finalizes the row."""


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


@dataclass(frozen=True)
class Moment:
    """Something that happened, or will."""

    at: float
    lane: str
    what: str
    kind: Kind = Kind.PLAIN
    details: Mapping[str, Any] = field(default_factory=dict)
    """The item, message, request or line, as it was."""
    is_exact: bool = True
    """Whether its time has milliseconds."""


@dataclass(frozen=True)
class Lease:
    """A worker's lease of the order's row."""

    lane: str
    begins: float
    ends: float
    expired: bool
    """Nobody ended it: its worker died."""


@dataclass(frozen=True)
class Row:
    """Moments that follow each other within a few milliseconds, from left to right."""

    at: float
    cells: Mapping[str, Moment]
    """By lane."""
    leased: frozenset[str]
    """The lanes of the workers that have the lease at that time."""
    after_seconds: float
    """How long nothing has happened before, if it is worth saying; else 0."""
    leased_before: frozenset[str]
    """Who had the lease meanwhile."""
    is_exact: bool = True


@dataclass(frozen=True)
class Timeline:
    """What the page shows."""

    lanes: Sequence[str]
    rows: Sequence[Row]
    leases: Sequence[Lease]

    @property
    def moments(self) -> list[Moment]:
        return [moment for row in self.rows for moment in row.cells.values()]

    @property
    def expected(self) -> Moment | None:
        """What comes next, if the log says when."""
        return next((each for each in self.moments if each.kind is Kind.EXPECTED), None)


def timeline(
    story: Story, lines: Sequence[Line], *, hidden_seconds: int = 0, pressed: Sequence[tuple[float, str]] = ()
) -> Timeline:
    """The earliest moment first.

    Args:
        lines: the order's, the earliest first.
        hidden_seconds: the payments queue's visibility timeout.
        pressed: the console's buttons, and when.
    """
    workers = _worker_lanes(lines)
    leases = list(_leases(lines, workers, story.now))
    moments = [
        *(Moment(at, CUSTOMER, f"you: {label}") for at, label in pressed),
        *_of_customer(story, lines),
        *_of_lines(story, lines, workers, leases),
        *(
            Moment(each.ends, each.lane, "lease expired: the next delivery can claim the row", Kind.WAITS)
            for each in leases
            if each.expired
        ),
        *_hidden(lines, hidden_seconds, story.now),
        *_delayed(lines, story.now),
        *(moment for event in story.events for moment in _of_event(event, lines, workers)),
    ]
    used = {each.lane for each in moments}
    others = [lane for lane in (REFUNDS, REPAIRS) if lane in used]
    lanes = [CUSTOMER, ORDERS, QUEUE, *sorted({*workers.values()} or {"worker A"}), *others, STRIPE]
    return Timeline(lanes, list(_rows(sorted(moments, key=lambda moment: moment.at), lanes, leases)), leases)


def _rows(moments: Sequence[Moment], lanes: Sequence[str], leases: Sequence[Lease]) -> Iterator[Row]:
    groups: list[list[Moment]] = []
    for each in moments:
        if groups and _shares_row(groups[-1], each, lanes):
            groups[-1].append(each)
        else:
            groups.append([each])
    last = moments[0].at if moments else 0.0
    for group in groups:
        first, end = group[0].at, group[-1].at
        yield Row(
            first,
            {moment.lane: moment for moment in group},
            leased=_leased(leases, first, end),
            after_seconds=first - last if first - last >= GAP_SECONDS else 0.0,
            leased_before=_leased(leases, last, last) & _leased(leases, first, first),
            is_exact=group[0].is_exact,
        )
        last = end


def _leased(leases: Sequence[Lease], begins: float, ends: float) -> frozenset[str]:
    return frozenset(lease.lane for lease in leases if lease.begins <= ends and begins <= lease.ends)


def _shares_row(together: Sequence[Moment], each: Moment, lanes: Sequence[str]) -> bool:
    before = together[-1]
    # Nothing follows from a refused claim.
    may_follow = before.kind is not Kind.REFUSED and lanes.index(each.lane) > lanes.index(before.lane)
    return may_follow and each.at - together[0].at <= TOGETHER_SECONDS


def _worker_lanes(lines: Sequence[Line]) -> dict[str, str]:
    """A lane for each execution environment that handled the order's messages, in the order of their appearance."""
    streams = list(dict.fromkeys(line.worker for line in lines if line.service == "charge_order"))
    letters = ascii_uppercase[: len(streams)]
    lanes = [f"worker {letter}" for letter in letters]
    if len(lanes) > WORKERS_MAX:
        lanes[WORKERS_MAX - 1 :] = [f"workers {letters[WORKERS_MAX - 1]} to {letters[-1]}"]
    return {stream: lanes[min(number, len(lanes) - 1)] for number, stream in enumerate(streams)}


# ---------------------------------------------------------------- from the log


def _of_customer(story: Story, lines: Sequence[Line]) -> Iterator[Moment]:
    for line in lines:
        if line.message == _PLACED:
            event = next((each for each in story.events if each.logged == _PLACED), Event(line.at, "orders", "placed"))
            yield Moment(line.at - 0.001, CUSTOMER, f"POST /orders: 202, {event.what}", details=event.details)
        elif line.message.startswith("response replayed"):
            lane, what = (ORDERS, "its refund") if line.fields.get("refund_id") else (CUSTOMER, "POST /orders")
            yield Moment(line.at, lane, f"{what} again: the same response", Kind.REPLAYED, line.fields)


def _of_lines(
    story: Story, lines: Sequence[Line], workers: Mapping[str, str], leases: Sequence[Lease]
) -> Iterator[Moment]:
    # Only the story knows a refund's amount, and who wanted it.
    of_refunds = {(each.logged, each.details.get("refund_id")): each.what for each in story.events}
    delivered: set[tuple[str, int]] = set()
    why = ""
    for line in lines:
        delivery = line.delivery
        if delivery and line.service in ("charge_order", "refund_charge") and delivery not in delivered:
            delivered.add(delivery)
            message_id, count = delivery
            what = f"message {message_id[:8]} delivered" + (f", receive count {count}" if count > 1 else "")
            details = {"message_id": message_id, "receive_count": count, "order_id": line.order_id}
            # At its line's time, so that sorting keeps it beside that line.
            yield Moment(line.at, QUEUE, what, Kind.PLAIN if count == 1 else Kind.WAITS, details)
        why = str(line.fields.get("why", why))
        lane = workers.get(line.worker) or _LANES.get(line.service, ORDERS)
        lane = {STRIPE_REQUEST: STRIPE, "message waits": QUEUE}.get(line.message, lane)
        if not line.message.startswith("response replayed"):
            what, kind = _said(line, why.partition(":")[0], _leased(leases, line.at, line.at))
            what = short(of_refunds.get((line.message, line.fields.get("refund_id", "")), what))
            # What every line has comes last.
            names = sorted(line.fields, key=lambda name: (name in _OF_EVERY_LINE, name != "row"))
            yield Moment(line.at, lane, what, kind, {name: line.fields[name] for name in names})


_OF_EVERY_LINE = frozenset(
    {"level", "location", "message", "timestamp", "service", "order_id", "correlation_id", "xray_trace_id"}
)
_SENTENCES: Mapping[str, tuple[str, Kind]] = {
    _PLACED: ("order stored, by one conditional write", Kind.PLAIN),
    "event published": ("published: {type}", Kind.PLAIN),
    _CLAIMED: ("claim granted to {owner}: lease until {until}", Kind.GRANTED),
    LEASED: ("claim refused: leased until {until}; again in {wait_seconds} s", Kind.REFUSED),
    DUPLICATE: ("claim refused: the row is {state}; duplicate deleted", Kind.REFUSED),
    "PaymentIntent stored": ("id stored before the confirm: {intent}", Kind.GRANTED),
    _FINALIZED: ("finalized: {state}{reason}", Kind.GRANTED),
    HELD: ("held, an operator releases it: {why}", Kind.FAILED),
    "payment not finished": ("lease released: {why}", Kind.WAITS),
    "message waits": ("waits {wait_seconds} s{because}", Kind.WAITS),
    "refund told": ("published: {type}", Kind.GRANTED),
    "refund not finished": ("refund not finished: {why}", Kind.WAITS),
    "refund updated": ("refund is {status}", Kind.GRANTED),
    "order updated": ("order is {status}", Kind.GRANTED),
    "event processed": ("webhook: {type}{left}", Kind.PLAIN),
    TIMED_OUT: ("worker killed at its timeout: no result stored, the lease stays", Kind.WAITS),
}
"""What a line says, by how it begins."""


def _said(line: Line, why: str, leased: Collection[str]) -> tuple[str, Kind]:
    """A line as a sentence.

    Args:
        why: the last reason for which a lease was released.
        leased: the workers that have the lease: a webhook leaves the row to them (sync_rules.py).
    """
    if line.message == STRIPE_REQUEST:
        return _request(line)
    fields, row = line.fields, line.fields.get("row") or {}
    known = next((each for start, each in _SENTENCES.items() if line.message.startswith(start)), None)
    if known is None:
        kind = Kind.GRANTED if _SYNCED in line.message else Kind.PLAIN
        return f"{line.service}: {line.message}", Kind.FAILED if fields.get("level") == "ERROR" else kind
    about = {
        "service": line.service,
        # `payment succeeded`, of onecharge.payment.succeeded or payment_intent.succeeded.
        "type": re.sub(r"[_.]", " ", str(fields.get("event_type") or fields.get("type")).removeprefix("onecharge.")),
        "owner": str(row.get("lease_owner", "nobody"))[:6],
        "until": clock_of(row.get("lease_expires_at", 0)),
        "state": fields.get("state") or row.get("state", "ended"),
        "intent": short(str(fields.get("payment_intent_id"))),
        "reason": f" ({fields['reason']})" if fields.get("reason") else "",
        "because": f", because: {why}" if why else "",
        "left": f"; row left alone: leased to {min(leased)}" if leased else "",
    }
    about |= {name: fields.get(name) for name in ("wait_seconds", "status")}
    about["why"] = str(fields.get("why")).partition(":")[0]
    return known[0].format(**about), known[1]


def _request(line: Line) -> tuple[str, Kind]:
    fields = line.fields
    status = str(fields.get("status"))
    by = "" if line.service in ("charge_order", "refund_charge") else f" by {line.service}"
    said = f"{line.verb}{by}: {'no answer' if status == 'none' else status}"
    if key := fields.get("idempotency_key"):
        said += f", key {short(str(key))}"
    if line.is_replay:
        return f"{said}, replayed", Kind.REPLAYED
    return said, Kind.PLAIN if status == "2xx" else Kind.WAITS


def short(text: str) -> str:
    """Ids by their beginning; the details have all of them."""
    return re.sub(r"\b(ord|pi|ch|rfd|re)_(\w{4})\w{8,}", r"\1_\2…", text)


def clock_of(at: float) -> str:
    """`12:03:10`, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"


# ---------------------------------------------------------------- leases


def _leases(lines: Sequence[Line], workers: Mapping[str, str], now: float) -> Iterator[Lease]:
    """From each claim to its end: finalized, released, or expired because its worker died."""
    for index, line in enumerate(lines):
        if line.message == _CLAIMED:
            lane = workers.get(line.worker, "worker A")
            expires = float(line.fields.get("row", {}).get("lease_expires_at", 0))
            end = next((each.at for each in lines[index + 1 :] if _ends(each, line)), None)
            yield Lease(lane, line.at, expires if end is None else end, expired=end is None and expires <= now)


def _ends(line: Line, claim: Line) -> bool:
    return line.message in ENDS and (line.worker, line.delivery) == (claim.worker, claim.delivery)


def _hidden(lines: Sequence[Line], hidden_seconds: int, now: float) -> Iterator[Moment]:
    """The message of a worker that died is visible again once the timeout that it was received with is over."""
    for index, line in enumerate(lines):
        later, visible_at = lines[index + 1 :], line.at + hidden_seconds
        if line.message != _CLAIMED or not line.delivery or now >= visible_at:
            continue
        message_id, count = line.delivery
        deliveries = [each.delivery for each in later if each.delivery and each.delivery[0] == message_id]
        is_over = any(_ends(each, line) for each in later) or any(again > count for _, again in deliveries)
        if not is_over and any(each.message == TIMED_OUT for each in later):
            what = f"message {message_id[:8]} is visible again: its visibility timeout ends"
            yield Moment(visible_at, QUEUE, what, Kind.EXPECTED, {"message_id": message_id, "receive_count": count})


def _delayed(lines: Sequence[Line], now: float) -> Iterator[Moment]:
    """A message that a worker has returned to its queue comes again once its wait is over."""
    for line in lines:
        if line.message == "message waits" and line.at + line.fields["wait_seconds"] > now:
            what = f"message {str(line.fields.get('message_id'))[:8]} is delivered again"
            yield Moment(line.at + line.fields["wait_seconds"], QUEUE, what, Kind.EXPECTED, line.fields)


# ---------------------------------------------------------------- from the story


def _of_event(event: Event, lines: Sequence[Line], workers: Mapping[str, str]) -> Iterator[Moment]:
    """The moment of an event; none if a line tells it."""
    at, is_exact, kind = event.at, False, Kind(event.tone)
    lane = QUEUE if event.where.endswith("Dlq") else STRIPE if event.where == "stripe" else ORDERS
    if event.where == "payments":
        lane = next(iter(workers.values()), "worker A")
    if event.where == "stripe":
        # Its second begins before what caused it, and ends before the webhook that reports it.
        reported = (line.at - 0.0002 for line in lines if line.service == "stripe_webhook" and line.at > at)
        at = min([at + 0.999, *reported])
    if event.logged.endswith(" finalized"):
        at += 0.9995  # After what Stripe did in the same second.
    what = short(event.what)
    if event.logged in (CONFIRM, REFUND):
        requests = [line for line in lines if _may_be_of(line, event)]
        answered = next((line.at for line in requests if line.fields["status"] != "none"), None)
        if answered is not None:
            at, is_exact = answered - 0.0002, True
        elif requests or any(line.message == TIMED_OUT and line.at > event.at for line in lines):
            what += ", and no answer is logged"
    elif event.logged and any(_tells(line, event) for line in lines):
        return
    yield Moment(at, lane, what, kind, {"where": event.where, **event.details}, is_exact)


def _may_be_of(line: Line, made: Event) -> bool:
    """Whether the line may be of the request that made the charge, or the refund."""
    of = made.details["refund_id" if made.logged == REFUND else "payment_intent"]
    is_of_it = str(of) in str(line.fields.get("idempotency_key"))
    is_near = made.at <= line.at < made.at + ANSWER_SECONDS
    return line.verb == made.logged and not line.is_replay and is_of_it and is_near


def _tells(line: Line, event: Event) -> bool:
    told = line.verb if line.message == STRIPE_REQUEST else line.message
    # A day may have passed for the order since: by a button.
    is_near = abs(line.at - event.at) <= SAME_SECONDS or event.logged == _PLACED
    is_of_it = line.fields.get("refund_id") == event.details.get("refund_id")
    is_synced = event.logged == _FINALIZED and _SYNCED in told
    return (is_synced or told.startswith(event.logged)) and is_near and is_of_it
