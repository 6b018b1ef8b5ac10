"""What the demo does to the system, drawn from a seed: who orders what, what arrives how often, and what breaks."""

import json
import random
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, islice, repeat
from typing import Any

from local.price_list import sold
from stripe_standin.faults import Fault

_DELIVERIES_MAX = 5
_POISON_BODIES = (
    "this is not JSON",
    "[1, 2, 3]",
    '{"specversion": "1.0"}',
    '{"specversion": "1.0", "type": "onecharge.order.placed", "data": {"amount_minor": -1}}',
)


class Expected(StrEnum):
    """The result that an order must have."""

    CHARGED = "charged"
    DECLINED = "declined"
    REQUIRES_ACTION = "action required"


class FollowUp(StrEnum):
    """What the customer does once the order has that result."""

    ANOTHER_CARD = "another card"
    """After a decline: pays with a good one."""
    AT_THE_BANK = "at the bank"
    """Finishes 3-D Secure; Stripe's webhooks report it, in duplicate and in the wrong order."""
    CANCEL = "cancel"
    REFUND = "refund"
    """Requests a refund of one piece, twice with the same key."""


class Channel(StrEnum):
    """How a duplicate of a message arrives: published again, or sent to the queue as a redrive does."""

    TOPIC = "topic"
    QUEUE = "queue"


_CARDS = {
    Expected.CHARGED: ("pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_mastercard", "pm_card_amex"),
    Expected.DECLINED: (
        "pm_card_visa_chargeDeclined",
        "pm_card_visa_chargeDeclinedInsufficientFunds",
        "pm_card_chargeDeclinedExpiredCard",
    ),
    Expected.REQUIRES_ACTION: ("pm_card_threeDSecure2Required",),
}
# Of the first orders of each kind, of which there is one at least; the others stay as they are.
_FOLLOW_UPS = {
    Expected.CHARGED: (FollowUp.REFUND,) * 3,
    Expected.DECLINED: (FollowUp.ANOTHER_CARD, FollowUp.CANCEL, FollowUp.ANOTHER_CARD),
    Expected.REQUIRES_ACTION: (FollowUp.AT_THE_BANK, FollowUp.CANCEL, FollowUp.AT_THE_BANK),
}
# After the charge, each: a worker that is killed at its timeout, and the 500 and the lost answer twice.
_FAULTS = (Fault.HANG_AFTER, Fault.ERROR_500_AFTER, Fault.DROP_AFTER, Fault.ERROR_500_AFTER, Fault.DROP_AFTER)


@dataclass(frozen=True)
class PlannedOrder:
    """One order, how often its client sends it, and how often its message is delivered beyond the first time."""

    customer_id: str
    idempotency_key: str
    body: dict[str, Any]
    expected: Expected
    fault: Fault | None
    client_retries: int
    extra_deliveries: tuple[Channel, ...]
    follow_up: FollowUp | None

    @property
    def pays(self) -> bool:
        """Whether it is charged in the end."""
        return self.expected is Expected.CHARGED or self.follow_up in (FollowUp.ANOTHER_CARD, FollowUp.AT_THE_BANK)

    @property
    def refunded_minor(self) -> int:
        """How much of it goes back to the customer."""
        return sold().unit_amount if self.follow_up is FollowUp.REFUND else 0

    @property
    def amount_minor(self) -> int:
        return sum(item["quantity"] * sold().unit_amount for item in self.body["items"])


@dataclass(frozen=True)
class Plan:
    """Everything that will happen; the same for the same seed and number of orders."""

    orders: tuple[PlannedOrder, ...]
    poison: tuple[tuple[str, tuple[Channel, ...]], ...]
    """Messages that no consumer can ever handle, each body different, and how they arrive."""
    malformed: tuple[tuple[dict[str, str], str], ...]
    """Requests that the API has to refuse with 4xx: headers and body."""

    @property
    def deliveries(self) -> int:
        """How many messages the payments queue receives, with duplicates and poison."""
        of_orders = sum(1 + len(order.extra_deliveries) for order in self.orders)
        return of_orders + sum(len(channels) for _, channels in self.poison)


def make_plan(orders: int, seed: int) -> Plan:
    """A plan for so many orders, at least ten, of which most can be paid."""
    chance = random.Random(seed)
    declined, requires_action = max(2, orders // 8), max(2, orders // 12)
    counts = {
        Expected.CHARGED: orders - declined - requires_action,
        Expected.DECLINED: declined,
        Expected.REQUIRES_ACTION: requires_action,
    }
    kinds = [
        (expected, fault, follow_up)
        for expected, count in counts.items()
        for fault, follow_up in zip(
            _padded(_FAULTS if expected is Expected.CHARGED else (), count),
            _padded(_FOLLOW_UPS[expected], count),
            strict=True,
        )
    ]
    chance.shuffle(kinds)
    planned = tuple(
        PlannedOrder(
            customer_id=f"cus_demo_{chance.randint(1, 20)}",
            idempotency_key=f"demo-{seed}-{index}",
            # Every amount is another one, so that a fault can be ordered for one order alone.
            body=_body(payment_method=chance.choice(_CARDS[expected]), quantity=2 + index),
            expected=expected,
            fault=fault,
            client_retries=chance.choice((0, 0, 1, 2)),
            extra_deliveries=_channels(chance, chance.randint(0, _DELIVERIES_MAX - 1)),
            follow_up=follow_up,
        )
        for index, (expected, fault, follow_up) in enumerate(kinds)
    )
    poison = tuple((body, _channels(chance, chance.randint(1, _DELIVERIES_MAX))) for body in _POISON_BODIES)
    key = {"Idempotency-Key": "demo-malformed"}
    bad = (
        _body(currency="xxx"),
        *(_body(quantity=quantity) for quantity in (0, -1, 10.5, 10**30)),
        _body(payment_method="4242424242424242"),
    )
    malformed = ((key, "{"), ({}, json.dumps(_body())), *((key, json.dumps(body)) for body in bad))
    return Plan(planned, poison, malformed)


def _padded[T](first: tuple[T, ...], count: int) -> list[T | None]:
    return list(islice(chain(first, repeat(None)), count))


def _channels(chance: random.Random, deliveries: int) -> tuple[Channel, ...]:
    return tuple(chance.choice((Channel.TOPIC, Channel.QUEUE)) for _ in range(deliveries))


def _body(*, payment_method: str = "pm_card_visa", currency: str = "", quantity: float = 1) -> dict[str, Any]:
    items = [{"sku": sold().sku, "quantity": quantity}]
    return {"currency": currency or sold().currency, "payment_method": payment_method, "items": items}
