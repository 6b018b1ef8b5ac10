"""All designs of the table: those of published_designs.py, and ours."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from charge_order.app import ORDER_EVENT
from charge_order.order_placed import charge_order
from lab.simulation.world import MAX_RECEIVE_COUNT
from lab.survival.design import Clients, Design, Handler
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
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_gateway import StripeGateway
from onecharge.payments.time_bounds import STRIPE_RETRIES
from onecharge.runtime.consumer import Consumer
from onecharge.runtime.queues import Delivery
from tests.shop.builders import PAYMENTS
from tests.shop.tools import tools_of
from tests.support.silent import SILENT


def onecharge(clients: Clients) -> Handler:
    """Ours, as charge_order deploys it: Consumer, charge_order, charge, PaymentStore and StripeGateway.

    docs/protocol.md; wired as in lab/simulation/service.py.
    """
    instruments = Instruments(clients.now, SILENT, SILENT)
    store, gateway = PaymentStore(clients.dynamodb, PAYMENTS), StripeGateway(clients.stripe)
    consumer = Consumer(
        model=ORDER_EVENT,
        handle=lambda event: charge_order(event, tools_of(store, gateway, instruments)),
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
            {PAYMENTS: ("order_id",)},
            stripe_retries=STRIPE_RETRIES,
            max_receive_count=MAX_RECEIVE_COUNT,
        ),
    )
}
