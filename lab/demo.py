"""`make demo`: orders over HTTP, each message delivered up to five times, injected faults, and one charge an order."""

import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path

import requests
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from lab.demo_count import Planned, figures_of, offenders_of, show
from local.arguments import Arguments, at_least
from local.arguments import seed as seed_of
from local.observe import NotIdle, drain, wait_until_idle
from local.price_list import sold
from local.project_files import PROJECT
from local.stack import Stack, running_stack
from local.terminal import run_in_terminal
from local.work_dir import sole_user_of
from onecharge.orders.schema import StoredOrder
from stripe_standin.faults import Fault

ORDERS_MIN = 10
_CLIENTS, _DELIVERIES_MAX = 4, 5
_CUSTOMER = "cus_demo"
_IDLE_SECONDS, _HANG_SECONDS = 300, 60
# After the charge, each: a worker that is killed at its timeout, and the 500 and the lost response twice.
_FAULTS = (Fault.HANG_AFTER, Fault.ERROR_500_AFTER, Fault.DROP_AFTER, Fault.ERROR_500_AFTER, Fault.DROP_AFTER)
_GOOD_CARDS = ("pm_card_visa", "pm_card_visa", "pm_card_mastercard", "pm_card_amex")
_OTHER_CARDS = ("pm_card_visa_chargeDeclined", "pm_card_chargeDeclinedExpiredCard", "pm_card_threeDSecure2Required")
_KILLED = "killing worker"
"""What the emulator logs when a function reaches its timeout."""
_EVENT_TYPE = {"event_type": {"DataType": "String", "StringValue": "onecharge.order.placed"}}


def make_plan(orders: int, seed: int) -> list[Planned]:
    """The same for the same seed and number of orders. Every fifth is declined, or waits for 3-D Secure."""
    chance = random.Random(seed)
    faults = chain(_FAULTS, repeat(None))
    kinds = [(pays, next(faults) if pays else None) for pays in (each % 5 > 0 for each in range(orders))]
    chance.shuffle(kinds)
    return [
        Planned(
            card=chance.choice(_GOOD_CARDS if pays else _OTHER_CARDS),
            quantity=2 + index,
            pays=pays,
            fault=fault,
            retries=chance.choice((0, 0, 1, 2)),
            duplicates=chance.choices(("topic", "queue"), k=chance.randrange(_DELIVERIES_MAX)),
        )
        for index, (pays, fault) in enumerate(kinds)
    ]


def place(stack: Stack, order: Planned, seed: int) -> tuple[str, int]:
    """Place an order, with its client's retries, and deliver the duplicates of its message.

    Returns:
        Its id, and how many retries got the same response.
    """
    items = [{"sku": sold().sku, "quantity": order.quantity}]
    body = {"currency": sold().currency, "payment_method": order.card, "items": items}
    token, key = stack.issuer.token(_CUSTOMER), f"demo-{seed}-{order.quantity}"
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}
    tries = range(1 + order.retries)
    responses = [requests.post(f"{stack.api_url}/orders", json=body, headers=headers, timeout=60) for _ in tries]
    responses[0].raise_for_status()
    order_id = str(responses[0].json()["order_id"])
    stored = stack.aws.client("dynamodb").get_item(TableName=stack.orders_table, Key={"order_id": {"S": order_id}})
    message = StoredOrder.from_item(stored["Item"]).placed_event().model_dump_json(exclude_none=True)
    sns, sqs = stack.aws.client("sns"), stack.aws.client("sqs")
    for way in order.duplicates:
        if way == "topic":
            sns.publish(TopicArn=stack.order_events_topic_arn, Message=message, MessageAttributes=_EVENT_TYPE)
        else:
            sqs.send_message(QueueUrl=stack.payments_queue_url, MessageBody=message)
    return order_id, sum(each.text == responses[0].text for each in responses[1:])


def run(stack: Stack, plan: Sequence[Planned], seed: int, console: Console) -> bool:
    """Place all orders, wait until all queues are idle, and count by the ledger; returns whether all is right."""
    started = time.monotonic()
    console.print(f"• placing {len(plan)} orders, with seed {seed}")
    stack.stripe.settings(latency_seconds=0.1)
    for order in plan:
        if order.fault:
            amount = {"amount": str(order.amount_minor)}
            stack.stripe.add_fault(order.fault, amount, seconds=_HANG_SECONDS, path="/v1/payment_intents/*/confirm")
    orders: dict[str, Planned] = {}
    replayed, is_idle, clients = 0, False, ThreadPoolExecutor(_CLIENTS)
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console) as bars:
        placing = bars.add_task("orders placed", total=len(plan))
        charging = bars.add_task("orders charged", total=sum(order.pays for order in plan))

        def look() -> None:
            charges = Counter(charge.order_id for charge in stack.stripe.ledger().charges)
            twice = sum(count > 1 for count in charges.values())
            bars.update(charging, completed=len(charges), description=f"orders charged ({twice} of them twice)")

        try:
            placed = clients.map(place, repeat(stack), plan, repeat(seed))
            for order, (order_id, same) in zip(plan, placed, strict=True):
                orders[order_id] = order
                replayed += same
                bars.advance(placing)
                look()
        finally:
            clients.shutdown(cancel_futures=True)
        with suppress(NotIdle):
            wait_until_idle(stack, timeout_seconds=_IDLE_SECONDS, meanwhile=look)
            is_idle = True
    ledger = stack.stripe.ledger()
    figures = figures_of(
        orders,
        ledger,
        replayed=replayed,
        dead=len(drain(stack, stack.payments_dlq_url)),
        lost=stack.stripe.faults_met(),
        killed=Path(stack.aws_log).read_text(errors="replace").count(_KILLED),
    )
    title = f"onecharge demo, seed {seed}, {time.monotonic() - started:.0f} s"
    is_right = show(figures, offenders_of(orders, ledger), title, console)
    if not is_idle:
        console.print("[bold red]messages are still in the queues after the timeout[/]")
    return is_right and is_idle


def main(arguments: Sequence[str], console: Console) -> int:
    """Returns 0 if every order that can be paid was charged once, and no other at all."""
    parser = Arguments(prog="make demo", description=__doc__)
    at_least_ten = at_least(ORDERS_MIN, "ORDERS")
    parser.add_argument("--orders", type=at_least_ten, default=60, help=f"how many, at least {ORDERS_MIN}")
    parser.add_argument("--seed", type=seed_of, default=None, help="repeats a run; drawn at random if not given")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    work_dir = PROJECT / ".local/demo"
    with (
        sole_user_of(work_dir),
        running_stack(
            work_dir=work_dir, on_progress=lambda message: console.print(f"• {message}", soft_wrap=True)
        ) as stack,
    ):
        return 0 if run(stack, make_plan(options.orders, seed), seed, console) else 1


if __name__ == "__main__":
    sys.exit(run_in_terminal(lambda console: main(sys.argv[1:], console)))
