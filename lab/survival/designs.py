"""The columns of the table: the designs of published_designs.py, and ours."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from charge_order.app import ORDER_EVENT
from lab.simulation.service import ORDERS
from lab.survival import published_designs as published
from lab.survival.design import Clients, Design, Handler
from onecharge.contract.states import PaymentState
from onecharge.orders.store import OrderStore
from onecharge.payments.deliveries import handle
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import PaymentStore
from onecharge.payments.time_bounds import STRIPE_RETRIES
from onecharge.runtime.consumer import Consumer
from onecharge.runtime.queues import Delivery
from ops.release import Release
from tests.shop.builders import PAYMENTS, SHOP
from tests.shop.tools import tools_of
from tests.support.silent import SILENT

OURS = "onecharge"
MAX_RECEIVE_COUNT = 500


def onecharge(clients: Clients) -> Handler:
    """Ours, as charge_order deploys it: Consumer, charge_order, charge, PaymentStore and PaymentIntents."""
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

    info = warning = error = thread_safe_append_keys = thread_safe_clear_keys = SILENT


_POWERTOOLS: dict[str, Any] = {"keys": {"IdempotencyTable": ("id",)}, "ttl_attribute": "expiration"}

DESIGNS: Mapping[str, Design] = {
    "message-id": Design(
        "message id\nkept for 24 h", published.message_id_for_a_day, {"ProcessedMessages": ("message_id",)}
    ),
    "get-put": Design("get, charge,\nput", published.get_then_put, {"ProcessedOrders": ("order_id",)}),
    "claim-first": Design("claim first,\nStripe key", published.claim_first, {"Claims": ("order_id",)}),
    "stripe-key": Design("Stripe key\nalone", published.stripe_key_alone, {}),
    "powertools": Design("Powertools\nidempotency", published.powertools, **_POWERTOOLS),
    "powertools-key": Design("Powertools,\nStripe key", published.powertools_with_stripe_key, **_POWERTOOLS),
    "durable-function": Design(
        "Lambda durable\nfunction", published.durable_function, {"Checkpoints": ("execution", "step")}, durable=True
    ),
    OURS: Design(
        "onecharge",
        onecharge,
        {PAYMENTS: ("order_id",), ORDERS: ("order_id",)},
        stripe_retries=STRIPE_RETRIES,
        max_receive_count=MAX_RECEIVE_COUNT,
        release=release,
        is_declined=is_declined,
    ),
}
"""By name."""
