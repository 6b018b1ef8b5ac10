"""What the demo does to the system, drawn from a seed: who orders what, what arrives how often, and what breaks."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from local.stripe_standin.faults import Fault

CURRENCY = "EUR"
_CARDS = ("pm_card_visa", "pm_card_visa", "pm_card_visa", "pm_card_mastercard", "pm_card_amex")
_DECLINED_CARDS = (
    "pm_card_visa_chargeDeclined",
    "pm_card_visa_chargeDeclinedInsufficientFunds",
    "pm_card_chargeDeclinedExpiredCard",
)
_DELIVERIES_MAX = 5
_POISON_BODIES = (
    "this is not JSON",
    "[1, 2, 3]",
    '{"specversion": "1.0"}',
    '{"specversion": "1.0", "type": "onecharge.order.placed", "data": {"amount_minor": -1}}',
)


class Expected(StrEnum):
    """What an order has to come to."""

    CHARGED = "charged"
    DECLINED = "declined"
    REQUIRES_ACTION = "action required"


class Afterwards(StrEnum):
    """What the customer does once the order has come to that."""

    ANOTHER_CARD = "another card"
    """After a decline: pays with a good one."""
    AT_THE_BANK = "at the bank"
    """Finishes 3-D Secure; Stripe's webhooks tell of it, twice and in the wrong order."""
    CANCEL = "cancel"
    """Wants the order no more."""
    REFUND = "refund"
    """Sends half of it back, and asks for that twice."""


class Door(StrEnum):
    """Where another delivery of a message comes in: published again, or sent to the queue as a redrive does."""

    TOPIC = "topic"
    QUEUE = "queue"


@dataclass(frozen=True)
class PlannedOrder:
    """One order, how often its client sends it, and how often its message is delivered beyond the first time."""

    idempotency_key: str
    body: dict[str, Any]
    expected: Expected
    fault: Fault | None
    client_retries: int
    extra_deliveries: tuple[Door, ...]
    afterwards: Afterwards | None

    @property
    def pays(self) -> bool:
        """Whether it is charged in the end."""
        return self.expected is Expected.CHARGED or self.afterwards in (Afterwards.ANOTHER_CARD, Afterwards.AT_THE_BANK)

    @property
    def refunded_minor(self) -> int:
        """How much of it goes back to the customer."""
        return self.amount_minor // 2 if self.afterwards is Afterwards.REFUND else 0

    @property
    def amount_minor(self) -> int:
        return sum(item["quantity"] * item["unit_amount"] for item in self.body["items"])


@dataclass(frozen=True)
class Poison:
    """A message that no consumer can ever handle; `body` is unique, so that it is recognised in the DLQ."""

    body: str
    deliveries: tuple[Door, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that will happen; the same for the same seed and number of orders."""

    orders: tuple[PlannedOrder, ...]
    poison: tuple[Poison, ...]
    malformed: tuple[tuple[dict[str, str], str], ...]

    @property
    def deliveries(self) -> int:
        """How many messages come to the payments queue, repetitions and poison among them."""
        of_orders = sum(1 + len(order.extra_deliveries) for order in self.orders)
        return of_orders + sum(len(poison.deliveries) for poison in self.poison)


# After the charge, each: the 500 and the drop twice, and one worker that is killed at its time-out.
_FAULTS = (Fault.HANG_AFTER, Fault.ERROR_500_AFTER, Fault.DROP_AFTER, Fault.ERROR_500_AFTER, Fault.DROP_AFTER)


def make_plan(orders: int, seed: int) -> Plan:
    """A plan for so many orders, at least ten, of which most can be paid."""
    chance = random.Random(seed)
    kinds = _kinds(orders)
    chance.shuffle(kinds)
    faults = iter(_FAULTS)
    # Of each kind one at least: the rest stays as it is.
    afterwards = {
        Expected.DECLINED: iter([Afterwards.ANOTHER_CARD, Afterwards.CANCEL, Afterwards.ANOTHER_CARD]),
        Expected.REQUIRES_ACTION: iter([Afterwards.AT_THE_BANK, Afterwards.CANCEL, Afterwards.AT_THE_BANK]),
        Expected.CHARGED: iter([Afterwards.REFUND] * 3),
    }
    planned = []
    for place, expected in enumerate(kinds):
        fault = next(faults, None) if expected is Expected.CHARGED else None
        planned.append(_order(chance, seed, place, expected, fault, next(afterwards[expected], None)))
    poison = tuple(Poison(body, _doors(chance, chance.randint(1, _DELIVERIES_MAX))) for body in _POISON_BODIES)
    return Plan(tuple(planned), poison, _malformed())


def _kinds(orders: int) -> list[Expected]:
    declined, requires_action = max(2, orders // 8), max(2, orders // 12)
    charged = orders - declined - requires_action
    return [Expected.CHARGED] * charged + [Expected.DECLINED] * declined + [Expected.REQUIRES_ACTION] * requires_action


def _order(
    chance: random.Random,
    seed: int,
    place: int,
    expected: Expected,
    fault: Fault | None,
    afterwards: Afterwards | None,
) -> PlannedOrder:
    match expected:
        case Expected.CHARGED:
            payment_method = chance.choice(_CARDS)
        case Expected.DECLINED:
            payment_method = chance.choice(_DECLINED_CARDS)
        case Expected.REQUIRES_ACTION:
            payment_method = "pm_card_threeDSecure2Required"
    # Every amount is another one, so that a fault can be ordered for one order alone.
    items = [{"sku": f"sku-{place}", "quantity": 1, "unit_amount": 1000 + 7 * place}]
    if chance.random() < 0.5:
        items.append({"sku": "shipping", "quantity": 2, "unit_amount": 100_000})
    return PlannedOrder(
        idempotency_key=f"demo-{seed}-{place}",
        body={
            "customer_id": f"cus_demo_{chance.randint(1, 20)}",
            "currency": CURRENCY,
            "payment_method": payment_method,
            "items": items,
        },
        expected=expected,
        fault=fault,
        client_retries=chance.choice((0, 0, 1, 2)),
        extra_deliveries=_doors(chance, chance.randint(0, _DELIVERIES_MAX - 1)),
        afterwards=afterwards,
    )


def _doors(chance: random.Random, deliveries: int) -> tuple[Door, ...]:
    return tuple(chance.choice((Door.TOPIC, Door.QUEUE)) for _ in range(deliveries))


def _malformed() -> tuple[tuple[dict[str, str], str], ...]:
    """Requests that the API has to refuse with 4xx: headers and body."""
    key = {"Idempotency-Key": "demo-malformed"}
    good = (
        '{"customer_id": "cus_demo", "currency": "%s", "payment_method": "%s", '
        '"items": [{"sku": "mug", "quantity": 1, "unit_amount": %s}]}'
    )
    return (
        (key, "{"),
        ({}, good % ("eur", "pm_card_visa", "1000")),
        (key, good % ("xxx", "pm_card_visa", "1000")),
        (key, good % ("eur", "pm_card_visa", "0")),
        (key, good % ("eur", "pm_card_visa", "-1000")),
        (key, good % ("eur", "pm_card_visa", "10.5")),
        (key, good % ("eur", "pm_card_visa", "1" + "0" * 30)),
        (key, good % ("eur", "4242424242424242", "1000")),
    )
