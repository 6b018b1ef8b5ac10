"""A complete look at Stripe: every PaymentIntent that names an order. `release` and `restore` decide by it.

First it asks whether the API key is of the account that has the shop's PaymentIntents. Then it reads the list since two
hours before the order, not a search, which lags. A PaymentIntent that a person has edited counts for each order that
any part of it names.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from heapq import nlargest
from typing import Any, NamedTuple, Self

from onecharge.orders.store import OrderStore
from onecharge.payments.charge_rows import OTHER_PARAMETERS, Payment, PaymentStore
from onecharge.payments.payment_intents import PaymentIntents, metadata_of, read_intent
from onecharge.payments.stripe_responses import ResponseKind, StripeIntent
from onecharge.runtime.dynamodb import ALL_SHARDS
from onecharge.runtime.paging import paged
from ops.connection import Stack
from ops.errors import Problem

MARGIN_SECONDS = 2 * 3600
"""The list of PaymentIntents begins this much before the order: two clocks may be an hour wrong each."""
_OTHER_PARAMETERS_SECONDS = 2 * 24 * 3600
"""How much earlier an order may have been placed first, if it was lost and placed again."""
_PAGE_SIZE = 100


def unfinished(payments: PaymentStore, now: int) -> list[Payment]:
    """Every row that is PENDING or REQUIRES_ACTION."""
    read = partial(payments.unfinished, claimed_before=now, limit=_PAGE_SIZE)
    ids = [each for page, _ in paged(ALL_SHARDS, read) for each in page]
    return list(filter(None, map(payments.read, ids)))


def orders_named_by(made: Any) -> set[str]:
    """Every order that a PaymentIntent or its charge names: a person may have edited some of it."""
    both = (made, getattr(made, "latest_charge", None))
    texts = [getattr(each, "description", None) or "" for each in both]
    texts += [metadata_of(each).get("order_id", "") for each in both]
    return set(re.findall(r"\bord_[0-9a-f]{32}\b", " ".join(texts)))


class Seen(NamedTuple):
    """What a complete look has shown."""

    began_at: int
    """By Stripe's clock, before the first page was read; epoch seconds."""
    by_order: Mapping[str, list[StripeIntent]]
    """The oldest first."""


@dataclass(frozen=True)
class Look:
    """What a look works with. Methods raise Problem, stripe.StripeError and botocore's errors."""

    payments: PaymentStore
    orders: OrderStore
    stripe: PaymentIntents
    is_dry_run: bool
    has_looked: bool = False
    """A person has looked: the account is the shop's, and has nothing else of the order."""
    ops: str = ".venv/bin/python -m ops"
    """How the commands begin, as they are typed."""

    @classmethod
    def of(cls, stack: Stack, *, is_dry_run: bool, has_looked: bool = False) -> Self:
        return cls(stack.payments, stack.orders, stack.payment_intents, is_dry_run, has_looked, stack.command)

    def look(self, rows: Iterable[Payment]) -> Seen:
        """Read all PaymentIntents since the earliest of these orders, in one pass."""
        wanted = {row.request.order_id: self._placed_at(row) for row in rows}
        return self.look_since(min(wanted.values()), wanted) if wanted else Seen(self.stripe_now(), {})

    def look_since(self, since: int, wanted: Collection[str] | None = None) -> Seen:
        """The same since then: what names these orders, or any."""
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
            then = f"`{self.ops} release ORDER --nothing --yes`"
            raise Problem(f"nothing shows that this Stripe account is the shop's: look there, then {then}")
        return Seen(began_at, found)

    def _placed_at(self, row: Payment) -> int:
        """When the order was placed: by its row, or by the order itself if that is earlier.

        An order that was lost may have been placed again: a key that Stripe knows with other parameters says so.
        """
        order, by_row = self.orders.find(row.request.order_id), row.request.placed_at
        by_row -= _OTHER_PARAMETERS_SECONDS if row.held_because == OTHER_PARAMETERS else 0
        return min(by_row, int(datetime.fromisoformat(order.placed_at).timestamp())) if order else by_row

    def _listed(self, since: int) -> Iterator[Any]:
        parameters: Any = {"created": {"gte": since}, "limit": _PAGE_SIZE, "expand": ["data.latest_charge"]}
        yield from self.stripe.client.v1.payment_intents.list(parameters).auto_paging_iter()

    def _require_our_account(self, *, without: str = "") -> bool:
        """Raises Problem if Stripe lacks the PaymentIntent of the youngest order: the key is another account's.

        False: no row names one, as after a loss of the table.

        Args:
            without: an order that is to forget its PaymentIntent. One that Stripe knows, of ten others, is enough then:
                a wrong key may have made those of several orders.
        """
        names: Any = {"ProjectionExpression": "order_id, payment_intent_id, placed_at"}
        pages = self.payments.client.get_paginator("scan").paginate(TableName=self.payments.table, **names)
        items = (item for page in pages for item in page["Items"] if "payment_intent_id" in item)
        others = (item for item in items if item["order_id"]["S"] != without)
        # Not the row that was claimed last: one whose PaymentIntent a wrong key has made is claimed again and again.
        youngest = nlargest(10 if without else 1, others, key=lambda item: int(item["placed_at"]["N"]))
        ids = [item["payment_intent_id"]["S"] for item in youngest]
        if ids and all(map(self.is_unknown, ids)):
            raise Problem(f"this Stripe account does not have {ids[0]}: the key is another account's, or mode's")
        return bool(ids)

    def is_unknown(self, intent_id: str) -> bool:
        failure = self.stripe.retrieve(intent_id).failure
        if failure and failure.kind is not ResponseKind.NOT_FOUND:
            raise Problem(f"Stripe does not show {intent_id}: {failure.kind}")
        return failure is not None

    def stripe_now(self) -> int:
        """The time by Stripe's clock, which every response has."""
        made: Any = self.stripe.client.v1.payment_intents.list({"limit": 1})
        return int(parsedate_to_datetime(made.last_response.headers["Date"]).timestamp())
