"""What is left to refund, from the staff's request through both services and back: 2,500 were paid."""

from itertools import permutations
from typing import Any

import pytest

from onecharge.payments.stripe_events import StripeEvent
from onecharge.runtime.dynamodb import to_item
from publish_events.mapping import payment_outcome_from_item
from tests.shop.builders import SHOP
from tests.shop.dynamodb import MemoryDynamoDB
from tests.shop.scripted_stripe import OUTAGE
from tests.shop.shop import Shop
from tests.support.one_order import NOW, refused
from tests.support.refunded_order import RefundedOrder
from update_order.orders import update_order


class House:
    """The order service and the payment service; messages between them wait until they are carried."""

    def __init__(self) -> None:
        self.order, self.shop = RefundedOrder.on(MemoryDynamoDB()), Shop()
        self.shop.now = NOW.timestamp()
        self.shop.deliver(self.order.order.placed_event())
        self.rows: list[dict[str, Any]] = []
        self.refunds: list[Any] = []

    def request(self, amount: int | None) -> int:
        """The staff refunds so much, or all that is left; returns the amount."""
        refund = self.order.refund(amount, f"key {len(self.refunds)}")
        self.refunds.append(refund)
        return refund.amount_minor

    def work(self, number: int) -> None:
        """refund_charge gets the message of this refund."""
        self.shop.refund(self.refunds[number].requested_event())
        self._note_row()

    def by_hand(self, amount: int) -> None:
        self.shop.stripe.refund_in_dashboard("pi_0", amount)

    def webhook(self) -> None:
        """Stripe says what it has refunded."""
        about: Any = {"event_id": "evt_1", "type": "charge.refunded", "created": 0, "payment_intent_id": "pi_0"}
        total = self.shop.stripe.refunded("pi_0")
        event = StripeEvent(**about, shop=SHOP, order_id=self.order.order_id, amount_refunded_minor=total)
        self.shop.apply(event)
        self._note_row()

    def _note_row(self) -> None:
        self.rows.append(self.shop.row(self.order.order_id))

    def carry_rows(self) -> None:
        """update_order gets what the row's stream has published, the newest first."""
        while self.rows:
            event = payment_outcome_from_item(to_item(self.rows.pop()))
            assert event is not None
            update_order(event, orders=self.order.orders, logger=self.shop.log.logger, count=lambda _: None)

    def carry_outcomes(self) -> None:
        """update_order gets the outcomes of refunds, the newest first."""
        while self.shop.published:
            self.order.tell(self.shop.published.pop())

    @property
    def really_left(self) -> int:
        """What Stripe has left once it has made all that is requested."""
        live: list[Any] = [each for each in self.shop.stripe.refunds if each.is_live]
        waiting = {each.refund_id: each.amount_minor for each in self.refunds}
        for each in live:
            waiting.pop(each.metadata.get("refund_id", ""), None)
        return int(2500 - sum(each.amount for each in live) - sum(waiting.values()))


@pytest.fixture
def house() -> House:
    return House()


@pytest.mark.parametrize("by_hand_first", [False, True])
def test_what_waits_is_not_left_though_more_is_refunded_by_hand(house: House, *, by_hand_first: bool) -> None:
    """1,000 of ours wait at Stripe's 503, and 700 are refunded by hand: 800 are left, shown and accepted."""
    house.shop.stripe.next("create refund", OUTAGE)
    for is_by_hand in (by_hand_first, not by_hand_first):
        if is_by_hand:
            house.by_hand(700)
            house.webhook()
            house.carry_rows()
        else:
            house.request(1000)
            house.work(0)
    assert (house.order.left, refused(lambda: house.order.refund(801, "b"))) == (800, "more-than-is-left")
    assert (house.request(None), house.order.left) == (800, 0)


def test_no_more_is_left_than_stripe_has_at_any_moment() -> None:
    """Two refunds are made, and their messages come in any order; in the end exactly the other 300 are left."""
    steps = ("first", "second", "webhook", "carry_rows", "carry_outcomes")
    for order in (each for each in permutations(steps) if each.index("first") < each.index("second")):
        house = House()
        house.by_hand(700)
        house.webhook()
        house.carry_rows()
        house.request(1000)
        house.request(500)
        for step in (*order, "webhook", "carry_outcomes", "carry_rows"):
            numbers = {"first": 0, "second": 1}
            house.work(numbers[step]) if step in numbers else getattr(house, step)()
            assert house.order.left <= house.really_left == 300, (order, step)
        statuses = {each.status for each in house.order.refunds.of_order(house.order.order_id)}
        assert (statuses, house.order.left) == ({"SUCCEEDED"}, 300), order
        assert house.shop.stripe.refunded("pi_0") == 2200


@pytest.mark.parametrize("kind", ["refused", "returned"])
def test_what_has_failed_is_left_again(house: House, kind: str) -> None:
    """Once Stripe has refused it, or the bank has returned it and an event says so."""
    house.request(1000)
    if kind == "refused":
        house.by_hand(2000)
        house.work(0)
    else:
        house.work(0)
        house.carry_outcomes()
        [made] = house.shop.stripe.refunds
        house.shop.stripe.return_refund(made)
        house.webhook()
    house.carry_rows()
    house.carry_outcomes()
    assert house.order.left == (500 if kind == "refused" else 2500)
