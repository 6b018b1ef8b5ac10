"""One order's timeline: lines and facts ─► moments, each in a lane, and the leases of the row. Pure.

    customer | order service | queue | worker A, B, … | webhook, reconcile | Stripe

Lines have milliseconds. What only Stripe knows has seconds: it is placed at the end of its second, unless the request
that caused it has a line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from string import ascii_uppercase
from typing import Any

from console.lines import DUPLICATE, ENDS, LEASED, STRIPE_REQUEST, TIMED_OUT, Line
from onecharge.contract.money import as_money
from ops import explain
from ops.diagnosis import diagnose
from ops.facts import Facts
from ops.findings import Severity

CUSTOMER, ORDERS, QUEUE, STRIPE = "customer", "order service", "queue", "Stripe"
REPAIRS = "webhook, reconcile"
"""What is ours, and follows Stripe; shown if one of them did something."""
WORKERS_MAX = 3
"""Lanes of workers. If there are more, they share the last one, so that the page stays readable."""
TOGETHER_SECONDS = 0.05
"""Moments this close share a row, if each is to the right of the one before."""
SOON_SECONDS = 120
"""What comes later at the latest, such as a job that repairs, is only in the findings: it usually is not needed."""
GAP_SECONDS = 2.0
"""From then on the page says how much time has passed between two moments."""
_LANES = {
    "orders_api": ORDERS,
    "update_order": ORDERS,
    "publish_events": QUEUE,
    "stripe_webhook": REPAIRS,
    "reconcile": REPAIRS,
    "republish": QUEUE,
}
_CLAIMED = "payment claimed"


class Kind(StrEnum):
    """How a moment is shown."""

    PLAIN = "plain"
    GRANTED = "granted"
    REFUSED = "refused"
    REPLAYED = "replayed"
    FAILED = "failed"
    MONEY = "money"
    WAITS = "waits"
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
class Lease:
    """A worker's lease of the order's row."""

    lane: str
    begins: float
    ends: float
    expired: bool
    """Nobody ended it: its worker died."""


@dataclass(frozen=True)
class Timeline:
    """What the page shows."""

    lanes: Sequence[str]
    rows: Sequence[Row]
    leases: Sequence[Lease]

    @property
    def moments(self) -> list[Moment]:
        return [moment for row in self.rows for moment in row.cells.values()]


def timeline(
    facts: Facts,
    lines: Sequence[Line],
    keys: Mapping[str, str],
    *,
    hidden_seconds: int = 0,
    pressed: Sequence[tuple[float, str]] = (),
) -> Timeline:
    """The earliest moment first.

    Args:
        lines: the order's, the earliest first.
        keys: the idempotency key of the request that made a charge, by the charge's id.
        hidden_seconds: the payments queue's visibility timeout.
        pressed: the console's buttons, and when.
    """
    workers = _worker_lanes(lines)
    leases = list(_leases(lines, workers, facts.now))
    moments = [
        *(Moment(at, CUSTOMER, f"you: {label}", Kind.WAITS) for at, label in pressed),
        *_of_customer(facts, lines),
        *_of_lines(lines, workers),
        *_expired(leases, facts.now),
        *_hidden(lines, hidden_seconds, facts.now),
        *_of_stripe(facts, lines, keys),
        *_of_others(facts),
        *_next(facts),
    ]
    repairs = [REPAIRS] if any(each.lane == REPAIRS for each in moments) else []
    lanes = [CUSTOMER, ORDERS, QUEUE, *sorted({*workers.values()} or {"worker A"}), *repairs, STRIPE]
    return Timeline(lanes, list(_rows(sorted(moments, key=lambda moment: moment.at), lanes, leases)), leases)


def _rows(moments: Sequence[Moment], lanes: Sequence[str], leases: Sequence[Lease]) -> Iterator[Row]:
    together: list[Moment] = []
    last: float | None = None
    for each in [*moments, None]:
        if together and not (each and _shares_row(together, each, lanes)):
            first, end = together[0].at, together[-1].at
            passed = first - last if last is not None else 0.0
            cells = {moment.lane: moment for moment in together}
            before = _leased(leases, first - passed, first - passed) & _leased(leases, first, first)
            yield Row(
                first,
                cells,
                _leased(leases, first, end),
                passed if passed >= GAP_SECONDS else 0.0,
                before,
                together[0].is_exact,
            )
            together, last = [], end
        if each:
            together.append(each)


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


def _of_customer(facts: Facts, lines: Sequence[Line]) -> Iterator[Moment]:
    order = facts.order
    for line in lines:
        if line.message == "order placed":
            item = order.model_dump(mode="json", exclude_none=True) if order else {}
            what = f"POST /orders: 202{f', {as_money(order.amount_minor, order.currency)}' if order else ''}"
            yield Moment(line.at - 0.001, CUSTOMER, what, details=item)
        elif line.message.startswith("response replayed"):
            yield Moment(line.at, CUSTOMER, "POST /orders again: the same response", Kind.REPLAYED, line.fields)


def _of_lines(lines: Sequence[Line], workers: Mapping[str, str]) -> Iterator[Moment]:
    delivered: set[tuple[str, int]] = set()
    why = ""
    for line in lines:
        delivery = line.delivery
        if delivery and line.service == "charge_order" and delivery not in delivered:
            delivered.add(delivery)
            message_id, count = delivery
            what = f"message {message_id[:8]} delivered" + (f", receive count {count}" if count > 1 else "")
            details = {"message_id": message_id, "receive_count": count, "order_id": line.order_id}
            # At its line's time, so that sorting keeps it beside that line.
            yield Moment(line.at, QUEUE, what, Kind.PLAIN if count == 1 else Kind.WAITS, details)
        why = str(line.fields.get("why", why))
        lane = workers.get(line.worker) or _LANES.get(line.service, ORDERS)
        if line.message == STRIPE_REQUEST:
            lane = STRIPE
        elif line.message == "message waits":
            lane = QUEUE
        if not line.message.startswith("response replayed"):
            what, kind = _said(line, why)
            yield Moment(line.at, lane, what, kind, _by_interest(line.fields))


def _by_interest(fields: Mapping[str, Any]) -> dict[str, Any]:
    """All of a line, what every line has last."""
    return {name: fields[name] for name in sorted(fields, key=lambda name: (name in _OF_EVERY_LINE, name != "row"))}


_OF_EVERY_LINE = frozenset(
    {"level", "location", "message", "timestamp", "service", "order_id", "correlation_id", "xray_trace_id"}
)


def _said(line: Line, why: str) -> tuple[str, Kind]:
    """A line as a sentence."""
    fields = line.fields
    row = fields.get("row") or {}
    match line.message:
        case "order placed":
            return "order stored, by one conditional write", Kind.PLAIN
        case "event published":
            return f"published: {_type(fields)}", Kind.PLAIN
        case "payment claimed":
            return f"claim granted to {_owner(row)}: lease until {_clock(row)}", Kind.GRANTED
        case message if message == LEASED:
            until = f" until {_clock(row)}" if row else ""
            return f"claim refused: leased{until}; again in {fields.get('wait_seconds')} s", Kind.REFUSED
        case "PaymentIntent stored":
            return f"id stored before the confirm: {short(str(fields.get('payment_intent_id')))}", Kind.GRANTED
        case "payment finalized":
            code = f" ({fields['code']})" if fields.get("code") else ""
            return f"finalized: {fields.get('state')}{code}", Kind.GRANTED
        case "payment not finished":
            return f"lease released: {fields.get('why')}", Kind.FAILED
        case "message waits":
            return f"waits {fields.get('wait_seconds')} s" + (
                f", because: {why.partition(':')[0]}" if why else ""
            ), Kind.WAITS
        case "order updated":
            return f"order is {fields.get('status')}", Kind.GRANTED
        case "event processed":
            return f"webhook: {_type(fields)}", Kind.PLAIN
        case message if message == TIMED_OUT:
            return "worker killed at its timeout: no result stored, the lease stays", Kind.FAILED
        case message if message == STRIPE_REQUEST:
            return _request(line)
        case message if message.startswith(DUPLICATE):
            state = f"the row is {row['state']}" if row else "the attempt has ended"
            return f"claim refused: {state}; duplicate deleted", Kind.REFUSED
        case "payment finalized as Stripe shows it":
            return f"{line.service} finalized the row: {fields.get('state')}", Kind.GRANTED
        case message:
            return f"{line.service}: {message}", Kind.FAILED if fields.get("level") == "ERROR" else Kind.PLAIN


def _request(line: Line) -> tuple[str, Kind]:
    fields = line.fields
    status = str(fields.get("status"))
    by = "" if line.service == "charge_order" else f" by {line.service}"
    said = f"{line.verb}{by}: {'no answer' if status == 'none' else status}"
    if key := fields.get("idempotency_key"):
        said += f", key {short(str(key))}"
    if line.is_replay:
        return f"{said}, replayed", Kind.REPLAYED
    return said, Kind.PLAIN if status == "2xx" else Kind.FAILED


def short(text: str) -> str:
    """Ids by their beginning; the details have all of them."""
    return re.sub(r"\b(ord|pi|ch)_(\w{4})\w{8,}", r"\1_\2…", text)


def _type(fields: Mapping[str, Any]) -> str:
    """`payment succeeded`, of onecharge.payment.succeeded or payment_intent.succeeded."""
    return str(fields.get("event_type")).removeprefix("onecharge.").replace("_", " ").replace(".", " ")


def _owner(row: Mapping[str, Any]) -> str:
    return str(row.get("lease_owner", "nobody"))[:6]


def _clock(row: Mapping[str, Any]) -> str:
    return clock_of(row.get("lease_expires_at", 0))


def clock_of(at: float) -> str:
    """`12:03:10`, UTC."""
    seconds = int(at) % 86_400
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


# ---------------------------------------------------------------- leases


def _leases(lines: Sequence[Line], workers: Mapping[str, str], now: float) -> Iterator[Lease]:
    """From each claim to its end: finalized, released, or expired because its worker died."""
    for index, line in enumerate(lines):
        if line.message != _CLAIMED:
            continue
        lane, expires = (
            workers.get(line.worker, "worker A"),
            float(line.fields.get("row", {}).get("lease_expires_at", 0)),
        )
        later = (each for each in lines[index + 1 :] if each.worker == line.worker and _ends(each, line))
        end = next(later, None)
        if end is not None:
            yield Lease(lane, line.at, end.at, expired=False)
        else:
            yield Lease(lane, line.at, expires, expired=expires <= now)


def _ends(line: Line, claim: Line) -> bool:
    return line.message in ENDS and line.delivery == claim.delivery


def _expired(leases: Iterable[Lease], now: float) -> Iterator[Moment]:
    for each in leases:
        if each.expired:
            yield Moment(each.ends, each.lane, "lease expired: the next delivery can claim the row", Kind.WAITS)


def _hidden(lines: Sequence[Line], hidden_seconds: int, now: float) -> Iterator[Moment]:
    """The message of a worker that died is visible again once the timeout that it was received with is over."""
    for index, line in enumerate(lines):
        later = lines[index + 1 :]
        if line.message != _CLAIMED or any(_ends(each, line) for each in later) or not line.delivery:
            continue
        message_id, count = line.delivery
        was_received_again = any(
            each.delivery and each.delivery[0] == message_id and each.delivery[1] > count for each in later
        )
        visible_at = line.at + hidden_seconds
        if not was_received_again and now < visible_at and any(each.message == TIMED_OUT for each in later):
            what = f"message {message_id[:8]} is visible again: its visibility timeout ends"
            yield Moment(visible_at, QUEUE, what, Kind.EXPECTED, {"message_id": message_id, "receive_count": count})


# ---------------------------------------------------------------- from Stripe, and what explain knows


def _of_stripe(facts: Facts, lines: Sequence[Line], keys: Mapping[str, str]) -> Iterator[Moment]:
    first_answers: dict[str, float] = {}
    for line in lines:
        if line.message == STRIPE_REQUEST and line.fields.get("status") != "none" and not line.is_replay:
            first_answers.setdefault(str(line.fields.get("idempotency_key")), line.at)
    for intent in facts.stripe.intents:
        for charge in intent.charges:
            key = keys.get(charge.id)
            answered = first_answers.get(key or "")
            is_its_answer = answered is not None and charge.created <= answered < charge.created + 30
            at = answered - 0.0002 if answered and is_its_answer else _end_of_second(charge.created, lines)
            paid = charge.status == "succeeded"
            money = as_money(charge.amount, charge.currency.upper())
            what = f"{'CHARGED' if paid else f'charge {charge.status}'}: {money}, {short(charge.id)}"
            is_exact = bool(answered and is_its_answer)
            if key and not any(line.fields.get("idempotency_key") == key for line in lines):
                what += ", and no answer is logged"
            details = {"charge": charge.id, "payment_intent": intent.intent.payment_intent_id, "idempotency_key": key}
            code = getattr(charge, "failure_code", None)
            yield Moment(
                at, STRIPE, what, Kind.MONEY if paid else Kind.FAILED, {**details, "failure_code": code}, is_exact
            )
        if intent.canceled_at is not None:
            why = intent.intent.cancellation_reason or "no reason"
            yield Moment(
                intent.canceled_at + 0.999,
                STRIPE,
                f"PaymentIntent canceled: {why}",
                Kind.FAILED,
                {"payment_intent": intent.intent.payment_intent_id},
            )


def _end_of_second(second: int, lines: Sequence[Line]) -> float:
    """But before the webhook that reports it."""
    return min(
        [second + 0.999, *(line.at - 0.0002 for line in lines if line.service == "stripe_webhook" and line.at > second)]
    )


def _of_others(facts: Facts) -> Iterator[Moment]:
    """What explain's timeline has and no line: refunds, reviews, dead letters."""
    for each in explain.timeline(facts):
        if each.where in ("refunds", "review") or each.where.endswith("Dlq"):
            yield Moment(
                each.at, QUEUE if each.where.endswith("Dlq") else ORDERS, each.what, details={"where": each.where}
            )


def _next(facts: Facts) -> Iterator[Moment]:
    """What the order waits for, as explain says it, and until when at the latest."""
    for finding in diagnose(facts):
        if (
            finding.severity is not Severity.FINE
            and finding.next
            and finding.next.until
            and 0 < finding.next.until - facts.now <= SOON_SECONDS
        ):
            what = f"waits until {clock_of(finding.next.until)} at the latest: {finding.cause.says}"
            yield Moment(
                finding.next.until,
                QUEUE,
                what,
                Kind.EXPECTED,
                {"cause": finding.cause.name, "then": finding.next.mover},
            )
