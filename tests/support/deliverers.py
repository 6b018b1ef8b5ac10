"""A process that delivers orders to the deployed code, over HTTP. A test runs several such processes."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import boto3
from botocore.config import Config

from onecharge.contract.events import OrderPlaced, OrderPlacedEvent
from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.deliveries import handle
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.stripe_client import stripe_client
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.consumer import Done
from tests.shop.builders import SHOP
from tests.shop.tools import tools_of

THREADS = 16
_PATIENCE_SECONDS = 240
"""Longer than any lease: a worker that a busy machine held up leaves its lease to expire."""
_PAUSE_SECONDS = 0.05


def event(number: int, placed_at: datetime) -> OrderPlacedEvent:
    order = OrderPlaced(
        order_id=f"ord_{number:032x}",
        attempt=1,
        customer_id="cus_1",
        amount_minor=1000 + number,
        currency="EUR",
        payment_method="pm_card_visa",
        placed_at=placed_at,
    )
    return OrderPlacedEvent.of(order, correlation_id="c")


def main(table: str, stripe_api_base: str, orders: int, deliveries_of_each: int, placed_at: str) -> None:
    bounds = TimeBounds(30)
    client = boto3.client("dynamodb", config=Config(max_pool_connections=THREADS))
    _ = client.exceptions  # as onecharge.runtime.aws makes it
    store = PaymentStore(client, table)
    stripe = PaymentIntents(stripe_client("sk_test_x", api_base=stripe_api_base, bounds=bounds), SHOP)

    def deliver(number: int) -> bool:
        """Redeliver until the message is done, as SQS does but sooner. Returns whether it was done."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            tools = tools_of(store, stripe, time.time)
            if handle(event(number, datetime.fromisoformat(placed_at)), tools) == Done():
                return True
            time.sleep(_PAUSE_SECONDS)
        return False

    numbers = [number for _ in range(deliveries_of_each) for number in range(orders)]
    with ThreadPoolExecutor(THREADS) as threads:
        sys.stdout.write(json.dumps({"done": sum(threads.map(deliver, numbers)), "of": len(numbers)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
