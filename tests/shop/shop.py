"""One shop in one process: the deployed payment service over DynamoDB in memory, Stripe in process, and a clock.

    shop = Shop()
    shop.stripe.next("confirm", LOST)                    # Stripe charges, and its answer is lost
    shop.deliver()                                       # charge_order handles the order's message
    shop.passes()                                        # the lease expires
    shop.deliver()
    assert (shop.outcome, shop.stripe.charged) == (("SUCCEEDED", "pi_0"), ["pi_0"])

Crashes and faults come where a test puts them: `crash_after`, `stripe.next`, `io.faults`, `io.at`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from onecharge.contract.events import CancelRequestedEvent, OrderPlaced, OrderPlacedEvent
from onecharge.contract.refund_events import RefundRequestedEvent
from onecharge.contract.states import PaymentState
from onecharge.payments.apply import apply
from onecharge.payments.deliveries import handle
from onecharge.payments.payment_intents import PaymentIntents, description_of
from onecharge.payments.payments_table import FrozenRequest, Payment, PaymentStore
from onecharge.payments.refund import refund
from onecharge.payments.stripe_events import Received, ReconcileCheckpoint, StripeEvent
from onecharge.payments.tools import Tools
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.consumer import Disposition
from onecharge.runtime.dynamodb import from_item, to_item
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import Parallel, one_after_another
from reconcile.run import ReconcileRun
from stripe_standin.refunds import Refund
from tests.shop.builders import (
    BOUNDS,
    INDEXES,
    PAYMENT_INTENT,
    PAYMENTS,
    PAYMENTS_STATE,
    REFUND,
    SHOP,
    T0,
    TABLES,
    metadata,
    order,
)
from tests.shop.dynamodb import Io, MemoryDynamoDB
from tests.shop.scripted_stripe import ScriptedStripe, Step, killed, killed_after
from tests.shop.sdk import client_of
from tests.shop.tools import NO_RATE_LIMIT, REQUIRES_ACTION_SECONDS, CountsTo, tools_of
from tests.support.harness import Log

RUN_SECONDS = 240.0
"""How long a run of the reconciler may take."""


def order_id(name: str) -> str:
    """Of the order that a test calls by this name, or by its id."""
    return name if name.startswith("ord_") else f"ord_{name:a>32}"


def refund_with(**changes: Any) -> RefundRequestedEvent:
    """The first refund's message with other data."""
    return REFUND.model_copy(update={"data": REFUND.data.model_copy(update=changes)})


class ShopIo(Io):
    """The clock, and what happens at the boundaries to DynamoDB and Stripe."""

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.faults: dict[str, str] = {}
        """Of the next request of each kind, as `stripe_confirm` or `dynamodb_UpdateItem`."""
        self.at: dict[int | str, Callable[[], object]] = {}
        """What happens once: at the boundary of this number, or at the next one of this name, as `stripe confirm`."""
        self.passed = 0
        """How many boundaries were passed."""
        self.asked: list[str] = []
        """The requests to DynamoDB, as `dynamodb GetItem`."""
        self.failing = ""
        """A request that fails until this is changed."""

    def pause(self, where: str) -> None:
        happens = self.at.pop(self.passed, None) or self.at.pop(where, None)
        self.passed += 1
        if where.startswith("dynamodb") and not where.endswith("answered"):
            self.asked.append(where)
        if happens:
            happens()

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        name = where.replace(" ", "_")
        if where == self.failing:
            return kinds[0]
        return self.faults.pop(name) if self.faults.get(name) in kinds else None


@dataclass
class Shop:
    """Its orders are called `a`, `b`, …; if a test names none, it is about order a."""

    log: Log = field(default_factory=Log)
    dynamodb: Any = None
    """The client of DynamoDB; in memory, if none is given."""
    ahead: int = 0
    """How many seconds the next worker's clock is ahead."""
    requires_action_seconds: int = REQUIRES_ACTION_SECONDS
    rate: Any = NO_RATE_LIMIT
    parallel: Parallel = one_after_another
    """How a run of the reconciler handles several rows."""
    seconds_a_request: float = 0
    """What each request to Stripe takes of that run's time."""
    counted: list[str] = field(default_factory=list)
    gauges: dict[str, float] = field(default_factory=dict)
    published: list[Any] = field(default_factory=list)
    """The outcomes of refunds."""

    def __post_init__(self) -> None:
        self.io = ShopIo(T0 + 1)
        self.dynamodb = self.dynamodb or MemoryDynamoDB(keys=TABLES, io=self.io, indexes=INDEXES)
        self.stripe = ScriptedStripe(io=self.io)
        self.payment_intents = PaymentIntents(self.stripe.client(), SHOP)
        self.store = PaymentStore(self.dynamodb, PAYMENTS)
        self.checkpoints = CheckpointStore(self.dynamodb, PAYMENTS_STATE, ReconcileCheckpoint)
        self.received = CheckpointStore(self.dynamodb, PAYMENTS_STATE, Received)

    # ------------------------------------------------------------ time

    @property
    def now(self) -> int:
        return self.io.time

    @now.setter
    def now(self, now: float) -> None:
        self.io.time = int(now)

    def passes(self, seconds: int = BOUNDS.lease_seconds) -> None:
        """So much time goes by: if not said otherwise, a lease expires."""
        self.io.time += seconds
        self.stripe.time_has_passed()

    # ------------------------------------------------------------ what the functions work with

    def tools(self) -> Tools:
        """The tools of a worker that begins now."""
        ahead = self.ahead
        return tools_of(
            self.store,
            self.payment_intents,
            lambda: self.now + ahead,
            logger=self.log.logger,
            count=self.counted.append,
            rate=self.rate,
            requires_action_seconds=self.requires_action_seconds,
            publish=self.published.append,
        )

    def apply(self, event: StripeEvent) -> None:
        apply(event, self.tools())

    # ------------------------------------------------------------ the order service's messages

    def order(self, name: str = "a", **changes: Any) -> OrderPlaced:
        return order(**{"order_id": order_id(name), **changes})

    def deliver(self, what: str | OrderPlacedEvent | CancelRequestedEvent = "a", **changes: Any) -> Disposition:
        """One delivery of an order's message, with these changes of the order's data; or of another event."""
        if isinstance(what, str):
            what = OrderPlacedEvent.of(self.order(what, **changes), correlation_id="c")
        return handle(what, self.tools())

    def crash_before(self, operation: str, name: str = "a", *, how: Step = killed, **changes: Any) -> None:
        """Deliver the message to a worker that is killed before this request to Stripe."""
        self.stripe.next(operation, how)
        with suppress(KeyboardInterrupt):
            self.deliver(name, **changes)

    def crash_after(self, operation: str, **changes: Any) -> None:
        """The same, after Stripe has executed it: the row does not show that."""
        self.crash_before(operation, how=killed_after, **changes)

    def cancel(self, **changes: Any) -> Disposition:
        """One delivery of the order service's request to cancel."""
        return self.deliver(CancelRequestedEvent.of(self.order(**changes), correlation_id="c"))

    def request_cancel(self, **changes: Any) -> Payment:
        """The request is stored, and its worker dies: nothing is canceled."""
        about: Any = {"correlation_id": "c", "now": self.now, "lease_seconds": 0}
        return self.store.claim(self.order(**changes), to_cancel=True, **about)

    def refund(self, event: RefundRequestedEvent = REFUND) -> Disposition:
        """One delivery of a refund's message."""
        return refund(event, self.tools())

    # ------------------------------------------------------------ the scheduled run

    def run(self, *, after_seconds: int = 0) -> Counter[str]:
        """One run of the reconciler so much later; returns what it has counted."""
        self.now += after_seconds
        self.counted.clear()
        already = len(self.stripe.requests)
        ReconcileRun(
            make_tools=self.tools,
            state=self.checkpoints,
            received=self.received,
            seconds_left=lambda: RUN_SECONDS - (len(self.stripe.requests) - already) * self.seconds_a_request,
            logger=self.log.logger,
            counts=CountsTo(self.counted.append, self.gauges.__setitem__),
            parallel=self.parallel,
        ).run()
        return Counter(self.counted)

    @property
    def checkpoint(self) -> ReconcileCheckpoint:
        checkpoint = self.checkpoints.read()
        assert checkpoint is not None
        return checkpoint

    # ------------------------------------------------------------ what happens at Stripe

    def made_before(self, status: str) -> str:
        """Stripe has a PaymentIntent of order a that no row names; returns its id."""
        request = FrozenRequest.of(self.order())
        about: Any = {"metadata": metadata(request.order_id), "description": description_of(request.order_id)}
        about["allowed_payment_method_types"] = ["card"]
        money = {"amount": request.amount_minor, "currency": request.currency.lower()}
        made = client_of(self.stripe).v1.payment_intents.create({**money, **about})
        self.stripe.show(made.id, status)
        return str(made.id)

    def pay_at_the_bank(self, names: str) -> None:
        """The customers of these orders authenticate: Stripe has an event of each, which no row shows."""
        for name in names:
            self.deliver(name, payment_method="pm_card_threeDSecure2Required")
            self.stripe.show(str(self.payment(name).payment_intent_id), "succeeded")

    def refund_by_hand(self, amount: int, **metadata: Any) -> Refund:
        """A person, or an earlier release, has made this refund."""
        self.stripe.refund_in_dashboard(PAYMENT_INTENT, amount, **metadata)
        return self.stripe.refunds[-1]

    # ------------------------------------------------------------ the row of an order

    def payment(self, name: str = "a") -> Payment:
        payment = self.store.read(order_id(name))
        assert payment is not None
        return payment

    def state(self, name: str = "a") -> PaymentState:
        return self.payment(name).state

    def row(self, name: str = "a") -> dict[str, Any]:
        """The row's attributes, in plain Python values."""
        key = to_item({"order_id": order_id(name)})
        return from_item(self.dynamodb.get_item(TableName=PAYMENTS, Key=key, ConsistentRead=True)["Item"])

    @property
    def outcome(self) -> tuple[str, str | None]:
        """The state of order a, and its PaymentIntent."""
        row = self.row()
        return row["state"], row.get("payment_intent_id")

    def lose_row(self, name: str = "a") -> None:
        self.dynamodb.delete_item(TableName=PAYMENTS, Key=to_item({"order_id": order_id(name)}))

    def restore(self, row: dict[str, Any]) -> None:
        """The table has this row, whatever was there."""
        self.dynamodb.put_item(TableName=PAYMENTS, Item=to_item(row))

    @property
    def alarms(self) -> list[str]:
        """The causes of the alarms that were counted."""
        return [each.cause for each in self.counted if isinstance(each, Alarm)]

    # ------------------------------------------------------------ refunds

    @property
    def refunded(self) -> list[int]:
        """The amounts that Stripe has refunded."""
        return [each.amount for each in self.stripe.refunds if each.is_live]

    @property
    def told(self) -> list[tuple[str, str | None, int]]:
        """Of each outcome that was published: what it says, its failure code, and Stripe's total."""
        data = [(each.type.rpartition(".")[2], each.data) for each in self.published]
        return [(kind, outcome.failure_code, outcome.amount_refunded_minor) for kind, outcome in data]


def paid_shop() -> Shop:
    """Order a is paid, and Stripe has forgotten the keys of its charge."""
    shop = Shop()
    shop.deliver()
    shop.stripe.forget_keys()
    # Stripe does not say which: a refusal that a key replays is never executed, and these may be.
    shop.stripe.behavior.stores_refused_refunds = False
    shop.counted.clear()
    shop.io.passed = 0
    return shop
