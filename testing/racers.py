"""A process that claims orders: 16 threads, each of which claims all orders. A test runs several such processes."""

import json
import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore.config import Config

from onecharge.payments.charges.protocol import FrozenRequest
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.leases import Claimed, new_lease_owner

THREADS = 16
CLAIMS_PER_RACER = 50


def race(store: PaymentStore, racer: int) -> list[str]:
    """Try to claim every order. Returns the ids of the orders that this racer claimed."""
    orders = [f"ord_{number:032x}" for number in range(CLAIMS_PER_RACER)]
    # Half of the racers go through the orders in the same sequence, the others in random ones.
    if racer % 2:
        random.Random(racer + os.getpid()).shuffle(orders)
    won = []
    for order_id in orders:
        now = int(time.time())
        claim = store.claim(
            FrozenRequest(order_id, 1099, "EUR", "cus_1", now),
            attempt=1,
            payment_method="pm_card_visa",
            correlation_id="c",
            owner=new_lease_owner(),
            now=now,
            lease_seconds=600,
        )
        if isinstance(claim, Claimed):
            won.append(order_id)
    return won


def main(table: str) -> None:
    config = Config(max_pool_connections=THREADS, retries={"total_max_attempts": 1})
    client = boto3.client("dynamodb", config=config)
    _ = client.exceptions  # as onecharge.runtime.aws makes it
    store = PaymentStore(client, table)
    with ThreadPoolExecutor(THREADS) as threads:
        won = [order_id for each in threads.map(lambda racer: race(store, racer), range(THREADS)) for order_id in each]
    sys.stdout.write(json.dumps({"won": won, "tried": THREADS * CLAIMS_PER_RACER}))


if __name__ == "__main__":
    main(sys.argv[1])
