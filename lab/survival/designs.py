"""All designs of the table: those of published_designs.py, and ours."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from charge_order.app import ORDER_EVENT
from lab.simulation.world import MAX_RECEIVE_COUNT
from lab.survival.design import ORDERS, Clients, Design, Handler
from lab.survival.published_designs import (
    claim_first,
    durable_function,
    fifo_and_composite_key,
    get_then_put,
    message_id_for_a_day,
    message_id_for_five_seconds,
    outbox,
    outbox_relay,
    powertools,
    powertools_with_stripe_key,
    run_in_engine,
    submit_to_engine,
)
from onecharge.contract.states import PaymentState
from onecharge.orders.store import OrderStore
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.deliveries import handle
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.time_bounds import STRIPE_RETRIES
from onecharge.runtime.consumer import Consumer
from onecharge.runtime.queues import Delivery
from ops.release import Release
from tests.shop.builders import PAYMENTS, SHOP
from tests.shop.tools import tools_of
from tests.support.silent import SILENT


def onecharge(clients: Clients) -> Handler:
    """Ours, as charge_order deploys it: Consumer, charge_order, charge, PaymentStore and PaymentIntents.

    docs/protocol.md; wired as in lab/simulation/service.py.
    """
    store, stripe = PaymentStore(clients.dynamodb, PAYMENTS), PaymentIntents(clients.stripe, SHOP)
    consumer = Consumer(
        model=ORDER_EVENT,
        handle=lambda event: handle(event, tools_of(store, stripe, clients.now)),
        queue=clients.queue,
        logger=_OnlyExceptions(clients),  # type: ignore[arg-type]  # It has the methods that the consumer calls.
        count=SILENT,
        jitter=lambda: 0.5,
    )

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        [record] = event["Records"]
        done = consumer.process(Delivery.of(SQSRecord(record)))
        return {"batchItemFailures": [] if done else [{"itemIdentifier": record["messageId"]}]}

    return handler


def release(clients: Clients) -> bool:
    """`python -m ops release ORDER`, for each order that is held."""
    payments, orders = PaymentStore(clients.dynamodb, PAYMENTS), OrderStore(clients.dynamodb, ORDERS)
    command = Release(payments, orders, PaymentIntents(clients.stripe, SHOP), is_dry_run=False)
    held = command.held(clients.now())
    seen = replace(command, has_looked=True).look(held)  # There is one account.
    for row in held:
        command.release(row, seen)
    return bool(held)


def is_declined(clients: Clients) -> bool:
    """The order is PAYMENT_DECLINED, and takes another attempt."""
    return any(row["state"]["S"] == PaymentState.DECLINED for row in clients.dynamodb.scan(TableName=PAYMENTS)["Items"])


@dataclass(frozen=True)
class _OnlyExceptions:
    """A logger that logs nothing but unexpected exceptions."""

    clients: Clients

    def exception(self, *_: object, **__: object) -> None:
        self.clients.log_exception()

    def info(self, *_: object, **__: object) -> None:
        pass

    warning = error = thread_safe_append_keys = thread_safe_clear_keys = info


# ---------------------------------------------------------------- the table

_ONE_IN_FLIGHT = "a FIFO queue has one message of a group in flight at a time"

DESIGNS: Mapping[str, Design] = {
    design.name: design
    for design in (
        Design("message-id", "message id\nkept for 24 h", message_id_for_a_day, {"ProcessedMessages": ("message_id",)}),
        Design("get-put", "get, charge,\nput", get_then_put, {"ProcessedOrders": ("order_id",)}),
        Design("lock-5s", "lock that\nexpires in 5 s", message_id_for_five_seconds, {"Locks": ("message_id",)}),
        Design("claim-first", "claim first,\nStripe key", claim_first, {"Claims": ("order_id",)}),
        Design(
            "fifo",
            "FIFO,\ncomposite key",
            fifo_and_composite_key,
            {"Payments": ("order_id", "attempt")},
            fifo=True,
            excluded_faults={
                "delivered-twice-at-once": _ONE_IN_FLIGHT,
                "delivered-again-while-slow": _ONE_IN_FLIGHT,
            },
        ),
        Design(
            "outbox",
            "outbox,\nrelay charges",
            outbox,
            {"Payments": ("order_id",), "Outbox": ("order_id",)},
            outbox="Outbox",
            relay=outbox_relay,
        ),
        Design(
            "powertools",
            "Powertools\nidempotency",
            powertools,
            {"IdempotencyTable": ("id",)},
            ttl_attribute="expiration",
        ),
        Design(
            "powertools-key",
            "Powertools,\nStripe key",
            powertools_with_stripe_key,
            {"IdempotencyTable": ("id",)},
            ttl_attribute="expiration",
        ),
        Design(
            "durable-function",
            "Lambda durable\nfunction",
            durable_function,
            {"Checkpoints": ("execution", "step")},
            durable=True,
        ),
        Design(
            "durable-engine",
            "durable engine,\njournaled key",
            submit_to_engine,
            {"Invocations": ("order_id",)},
            outbox="Invocations",
            relay=run_in_engine,
            relay_retries_forever=True,
        ),
        Design(
            "onecharge",
            "onecharge",
            onecharge,
            {PAYMENTS: ("order_id",), ORDERS: ("order_id",)},
            stripe_retries=STRIPE_RETRIES,
            max_receive_count=MAX_RECEIVE_COUNT,
            release=release,
            is_declined=is_declined,
        ),
    )
}
