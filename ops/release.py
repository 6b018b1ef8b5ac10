"""Release what is held: orders whose PaymentIntent may no longer be created, since Stripe may have lost their keys.

It reads Stripe's complete list since the order was placed. What it finds is stored, or canceled; if it finds nothing,
the worker may create one once more. Then the order's event is published. Exit status: 0 if each is released, else 1.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from heapq import nlargest
from typing import Any, NamedTuple, Self

from onecharge.contract.states import OrderStatus, PaymentState
from onecharge.orders.schema import StoredOrder
from onecharge.orders.store import OrderStore
from onecharge.orders.transitions import WAITING
from onecharge.payments.charge_rules import CREATE_SECONDS, Outcome, final_changes, is_held, reason_of_cancellation
from onecharge.payments.payment_intents import PaymentIntents, metadata_of, read_intent
from onecharge.payments.payments_table import DUPLICATE, PARAMETERS_DIFFER, Payment, PaymentStore, WriteRefused
from onecharge.payments.stripe_responses import ResponseKind, StripeIntent
from onecharge.payments.time_bounds import FUTURE_MAX_SECONDS
from onecharge.runtime.dynamodb import ALL_SHARDS
from onecharge.runtime.paging import paged
from ops.connection import OPS, ORDER, Stack
from ops.output import Problem, Report, seconds_of, time_of
from ops.publish import touch

ALL_SECONDS = 7 * 24 * 3600
"""`--all` only names what is older."""
MARGIN_SECONDS = 2 * 3600
"""The list of PaymentIntents begins this much before the order: two clocks may be an hour wrong each."""
_PLACED_AGAIN_SECONDS = 2 * 24 * 3600
_PAGE_SIZE = 100


def add_arguments(parser: ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("order", nargs="?", **ORDER)
    which.add_argument("--all", action="store_true", help="every order that is held, up to a week old")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--of", metavar="PI", help="of several that succeeded, the one that pays it: refund the others")
    how.add_argument("--nothing", action="store_true", help="you have looked: Stripe has nothing else of the order")
    how.add_argument("--forget", action="store_true", help="let the row forget a PaymentIntent of another account")


def run(stack: Stack, arguments: Namespace) -> Report:
    if arguments.all and (arguments.of or arguments.forget or arguments.nothing):
        raise Problem("--of, --nothing and --forget are for one order")
    release = Release.of(stack, is_dry_run=not arguments.yes, has_looked=arguments.nothing)
    now = release.stripe_now()
    if arguments.all:
        rows = release.held(now)
    else:
        order_id = stack.order_id_of(arguments.order)
        stack.tables_with(order_id)
        rows = [release.named(order_id)]
    fresh = [row for row in rows if not arguments.all or now - row.request.placed_at <= ALL_SECONDS]
    seen = None if arguments.forget else release.look(fresh)
    found = list[dict[str, Any]]()
    for row in rows:
        try:
            if row not in fresh:
                raise Blocked("older than a week: release it by its id")
            what, is_done = release.release(row, seen, of=arguments.of) if seen else release.forget(row), arguments.yes
        except Blocked as blocked:
            what, is_done = str(blocked), False
        found.append({"order_id": row.request.order_id, "done": is_done, "what": what})
    return Report({"orders": found}, is_wrong=not all(each["done"] for each in found), is_dry_run=not arguments.yes)


def unfinished(payments: PaymentStore, now: int) -> list[Payment]:
    """Every row that is PENDING or REQUIRES_ACTION."""
    read = partial(payments.unfinished, claimed_before=now, limit=_PAGE_SIZE)
    ids = [each for page, _ in paged(ALL_SHARDS, read) for each in page]
    return list(filter(None, map(payments.read, ids)))


# ---------------------------------------------------------------- what follows from what Stripe shows, pure


class Blocked(Exception):
    """Nothing is done: a person has to look, or to run it again. The text says why."""


class Decision(NamedTuple):
    """What follows for a row that is held: what is one too many is canceled first; `store` is the order's, if any."""

    cancel: tuple[StripeIntent, ...] = ()
    store: StripeIntent | None = None


def orders_named_by(made: Any) -> set[str]:
    """Every order that a PaymentIntent or its charge names: a person may have edited some of it."""
    both = (made, getattr(made, "latest_charge", None))
    texts = [getattr(each, "description", None) or "" for each in both]
    texts += [metadata_of(each).get("order_id", "") for each in both]
    return set(re.findall(r"\bord_[0-9a-f]{32}\b", " ".join(texts)))


def decide(row: Payment, found: Iterable[StripeIntent], *, shop: str, of: str | None = None) -> Decision:
    """What a complete look at Stripe means for a row that is held. Raises Blocked.

    Args:
        found: every PaymentIntent that names the order, in its metadata, its charge's or a description.
        of: the id of the PaymentIntent that pays the order, if several have succeeded.
    """
    found = sorted(found, key=lambda each: (each.is_duplicate_of(row.request.money), each.created))
    if strange := [each for each in found if not row.request.matches(each, shop)]:
        raise Blocked(f"{_ids(strange)} names the order, but shop, order, customer, amount or currency do not agree")
    succeeded = [each for each in found if each.status == "succeeded" and of in (None, each.payment_intent_id)]
    canceled = [each for each in found if each.status == "canceled"]
    still_open = [each for each in found if each.is_open]
    if cardless := [each for each in still_open if not each.takes_cards]:
        raise Blocked(f"{_ids(cardless)} takes no cards: cancel it at Stripe, which cancels the order")
    if waiting := [each for each in found if not (each.is_open or each.status in ("succeeded", "canceled"))]:
        raise Blocked(f"{_ids(waiting)} is {waiting[0].status}: run it again once Stripe has decided")
    if of is not None and not succeeded:
        raise Blocked(f"{of} is no PaymentIntent of the order that succeeded")
    if len(succeeded) > 1:
        raise Blocked(f"{_ids(succeeded)} succeeded: name one with --of, and refund the others at Stripe")
    if succeeded or canceled:
        return Decision(tuple(still_open), (succeeded or canceled)[0])
    return Decision(tuple(still_open[1:]), still_open[0] if still_open else None)


def _ids(intents: Iterable[StripeIntent]) -> str:
    return ", ".join(each.payment_intent_id for each in intents)


def changes_of(intent: StripeIntent, order: StoredOrder | None, now: int) -> dict[str, Any]:
    """What is written to the row for the order's PaymentIntent. An order that was told DECLINED waits for a card."""
    is_declined = order is not None and order.status is OrderStatus.PAYMENT_DECLINED
    if intent.is_open and not is_declined:
        return {"payment_intent_id": intent.payment_intent_id}
    ends = {"succeeded": PaymentState.SUCCEEDED, "canceled": PaymentState.CANCELED}
    state = PaymentState.DECLINED if intent.is_open else ends[intent.status]
    return final_changes(Outcome(state, intent, reason_of_cancellation(intent)), now)


def _is_canceling(row: Payment, order: StoredOrder | None) -> bool:
    return row.cancel_requested_at is not None or (order is not None and order.status is OrderStatus.CANCELING)


ENDS = {OrderStatus.CANCELED: PaymentState.CANCELED, OrderStatus.PAYMENT_DECLINED: PaymentState.DECLINED}
"""How a row ends whose order has ended so, if Stripe has nothing: a late duplicate has made the lost row again."""


def creates_until(row: Payment) -> int:
    """Until when a worker may create, whose clock is behind; epoch seconds."""
    return row.request.placed_at + CREATE_SECONDS + FUTURE_MAX_SECONDS


def changes_without(row: Payment, order: StoredOrder | None, now: int, *, has_looked: bool) -> dict[str, Any]:
    """What is written to the row if Stripe has nothing of the order. Raises Blocked."""
    if row.held_because in (PARAMETERS_DIFFER, DUPLICATE) and not (has_looked or row.cancel_requested_at):
        raise Blocked(f"{row.held_because}: look for what the order paid, then say --nothing")
    if order is None or order.status is OrderStatus.PAID:
        raise Blocked(f"Stripe has nothing of it, and the order is {order.status if order else 'not in Orders'}")
    if end := ENDS.get(order.status):
        return final_changes(Outcome(end), now)
    if order.money != row.request.money and order.status is not OrderStatus.CANCELING:
        raise Blocked("the order's amount or currency is not the payment's: cancel the order through the API")
    if now < (over_at := creates_until(row)):
        # If the row is lost after it was released, a worker whose clock is behind would create under the first keys.
        raise Blocked(f"a worker whose clock is behind may still create it: run it again at {time_of(over_at)}")
    return {"released_at": now, "held_because": None}


# ---------------------------------------------------------------- on the tables and Stripe


class Seen(NamedTuple):
    """What a complete look has shown."""

    began_at: int
    """By Stripe's clock, before the first page was read; epoch seconds."""
    by_order: Mapping[str, list[StripeIntent]]
    """The oldest first."""


@dataclass(frozen=True)
class Release:
    """The command, with which `restore` shares the look. Methods raise Problem, StripeError and botocore's errors."""

    payments: PaymentStore
    orders: OrderStore
    stripe: PaymentIntents
    is_dry_run: bool
    has_looked: bool = False
    """A person has looked: the account is the shop's, and has nothing else of the order."""
    ops: str = OPS
    """How the commands begin, as they are typed."""

    @classmethod
    def of(cls, stack: Stack, *, is_dry_run: bool, has_looked: bool = False) -> Self:
        orders = OrderStore(stack.dynamodb, stack.value("OrdersTable"))
        return cls(stack.payments, orders, stack.payment_intents, is_dry_run, has_looked, stack.command)

    def held(self, now: int) -> list[Payment]:
        """Every row that is held."""
        return [row for row in unfinished(self.payments, now) if is_held(row, now)]

    def named(self, order_id: str) -> Payment:
        """The row of this order."""
        if row := self.payments.read(order_id):
            return row
        raise Problem(f"{order_id} has no payment: its message makes one: `{self.ops} publish {order_id} --yes`")

    # ------------------------------------------------------------ the look

    def look(self, rows: Iterable[Payment]) -> Seen:
        """Read all PaymentIntents since the earliest of these orders, in one pass."""
        wanted = {row.request.order_id: self._placed_at(row) for row in rows}
        return self.look_since(min(wanted.values()), wanted) if wanted else Seen(self.stripe_now(), {})

    def look_since(self, since: int, wanted: Collection[str] | None = None) -> Seen:
        """Every PaymentIntent since then that names these orders, or any: by Stripe's list, since a search lags."""
        is_ours = self._require_our_account() or self.has_looked
        began_at = self.stripe_now()
        found: dict[str, list[StripeIntent]] = {order_id: [] for order_id in wanted or ()}
        for made in self._listed(since=since - MARGIN_SECONDS):
            named, intent = orders_named_by(made), read_intent(made)
            is_ours |= intent.shop == self.stripe.shop
            if len(named) > 1:  # It is no order's.
                intent = replace(intent, order_id=None)
            for order_id in named if wanted is None else named.intersection(wanted):
                found.setdefault(order_id, []).insert(0, intent)  # The list has the newest first.
        if wanted and not is_ours:
            then = f"for what the order paid, too, then `{self.ops} release ORDER --nothing --yes`"
            raise Problem(f"nothing shows that this Stripe account is the shop's: look there, {then}")
        return Seen(began_at, found)

    def _listed(self, since: int) -> Iterator[Any]:
        given: Any = {"created": {"gte": since}, "limit": _PAGE_SIZE, "expand": ["data.latest_charge"]}
        yield from self.stripe.client.v1.payment_intents.list(given).auto_paging_iter()

    def _placed_at(self, row: Payment) -> int:
        """When the order was placed first: by its row, or by the order itself if that is earlier.

        If it was lost and placed again, both have the later time: by a day at most, or it is a limit of the protocol.
        """
        order, by_row = self.orders.find(row.request.order_id), row.request.placed_at - _PLACED_AGAIN_SECONDS
        return min(by_row, seconds_of(order.placed_at)) if order else by_row

    def _require_our_account(self, *, without: str = "") -> bool:
        """Raises Problem if Stripe lacks the PaymentIntent of the youngest order: the key is another account's.

        False: no row names one, as after a loss of the table.

        Args:
            without: an order that forgets its PaymentIntent: one of ten others is enough, as a wrong key makes several.
        """
        names: Any = {"ProjectionExpression": "order_id, payment_intent_id, placed_at"}
        pages = self.payments.client.get_paginator("scan").paginate(TableName=self.payments.table, **names)
        items = (item for page in pages for item in page["Items"] if "payment_intent_id" in item)
        others = (item for item in items if item["order_id"]["S"] != without)
        # Not the row that was claimed last: one whose PaymentIntent a wrong key has made is claimed again and again.
        youngest = nlargest(10 if without else 1, others, key=lambda item: int(item["placed_at"]["N"]))
        ids = [item["payment_intent_id"]["S"] for item in youngest]
        if ids and all(map(self._is_unknown, ids)):
            raise Problem(f"this Stripe account does not have {ids[0]}: the key is another account's, or mode's")
        return bool(ids)

    def _is_unknown(self, intent_id: str) -> bool:
        failure = self.stripe.retrieve(intent_id).failure
        if failure and failure.kind is not ResponseKind.NOT_FOUND:
            raise Problem(f"Stripe does not show {intent_id}: {failure.kind}")
        return failure is not None

    def stripe_now(self) -> int:
        """The time by Stripe's clock, which every response has."""
        made: Any = self.stripe.client.v1.payment_intents.list({"limit": 1})
        return int(parsedate_to_datetime(made.last_response.headers["Date"]).timestamp())

    # ------------------------------------------------------------ what is written, unless a person has to look

    def release(self, row: Payment, seen: Seen, *, of: str | None = None) -> str:
        """Store what was found, or let the worker create; then publish the order's event. Raises Blocked."""
        order, now = self.orders.find(row.request.order_id), seen.began_at
        if not is_held(row, now):
            if row.state is not PaymentState.PENDING or order is None or order.status not in WAITING:
                raise Blocked(f"it is not held: the payment is {row.state}")
            return self._write(row, {}, now, "publish the order's event again: it is not held")
        if row.lease_expires_at > now:
            raise Blocked(f"a worker has it until {time_of(row.lease_expires_at)}: run it again then")
        found = decide(row, seen.by_order[row.request.order_id], shop=self.stripe.shop, of=of)
        if found.store:
            return self.store(row, found, order, now)
        changes = changes_without(row, order, now, has_looked=self.has_looked)
        if end := changes.get("state"):
            return self._write(row, changes, now, f"end it as {end}, as its order: Stripe has none")
        what = "create a PaymentIntent" + (", and cancel it" if _is_canceling(row, order) else "")
        return self._write(row, changes, now, f"let the worker {what}: Stripe has none")

    def store(self, row: Payment, found: Decision, order: StoredOrder | None, now: int) -> str:
        """Cancel what is one too many, and write the order's PaymentIntent to the row. Raises Blocked."""
        cancel, store = found
        if store is None:
            raise Blocked("Stripe has no PaymentIntent of it")
        if store.is_open and order and order.status is OrderStatus.CANCELED:
            raise Blocked(f"the order is CANCELED, but {store.payment_intent_id} is open: cancel it at Stripe")
        if store.is_duplicate_of(row.request.money) and not self.has_looked:
            raise Blocked(f"{store.payment_intent_id} is a duplicate: if the order paid nothing, --nothing cancels it")
        store = self.stripe.with_dispute_that_counts(store)
        # First: the page of a customer may still confirm one of them. If this is interrupted, a person has to look.
        for each in cancel if not self.is_dry_run else ():
            shown = self.stripe.cancel(each.payment_intent_id, "duplicate").intent
            # Another's cancellation is the order's: an older row that names it would end as CANCELED.
            if shown is None or not shown.is_duplicate_of(row.request.money):
                raise Blocked(f"{each.payment_intent_id} could not be canceled: run it again")
        what = f"store {store.payment_intent_id}, which is {store.status}"
        what = f"cancel {_ids(cancel)}, and {what}" if cancel else what
        what += ": the worker cancels it" if store.is_open and _is_canceling(row, order) else ""
        return self._write(row, changes_of(store, order, now), now, what)

    def forget(self, row: Payment) -> str:
        """Let the row forget a PaymentIntent that a wrong Stripe key has made. Raises Blocked."""
        self._require_our_account(without=row.request.order_id)
        now, intent_id = self.stripe_now(), row.payment_intent_id
        if row.state is not PaymentState.PENDING or row.lease_expires_at > now or intent_id is None:
            raise Blocked(f"the payment is {row.state}, and names {intent_id}; or a worker has it")
        if not self._is_unknown(intent_id):
            raise Blocked(f"this Stripe account has {intent_id}")
        return self._write(row, {"payment_intent_id": None, "released_at": None}, now, f"let it forget {intent_id}")

    def _write(self, row: Payment, changes: Mapping[str, Any], now: int, what: str) -> str:
        """Write on the revision that was read before the look, then publish. Raises Blocked."""
        if self.is_dry_run:
            return f"would {what}"
        try:
            if changes:
                self.payments.write_if_unchanged(row, changes, now=now)
        except WriteRefused:
            raise Blocked("the row has changed since it was read: run it again") from None
        touch(self.payments.client, self.orders.table, row.request.order_id)
        return f"done: {what}"
