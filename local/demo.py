"""`make demo`: orders over HTTP, each message delivered up to five times, injected faults, and one charge an order."""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from local.demo_plan import Channel, Expected, FollowUp, Plan, PlannedOrder, make_plan
from local.demo_report import Report, judge, show
from local.idle import NotIdle, wait_until_idle
from local.stack import PROJECT, Stack, running_stack
from local.stripe_standin.admin import StandInAdmin
from local.terminal import run_in_terminal
from local.work_dir import sole_user_of
from testing.arguments import Arguments, at_least
from testing.arguments import seed as seed_of

ORDERS_MIN = 10
_CLIENTS = 4
_IDLE_SECONDS = 150
_HANG_SECONDS = 60
_KILLED = "killing worker"
_EVENT_TYPE = {"event_type": {"DataType": "String", "StringValue": "onecharge.order.placed"}}


@dataclass
class Bars:
    """The progress bars."""

    progress: Progress
    placed: TaskID
    delivered: TaskID
    finalized: TaskID


@dataclass
class Traffic:
    """Everything that is sent to a running stack, and counts of the responses."""

    stack: Stack
    plan: Plan
    bars: Bars
    orders: dict[str, PlannedOrder] = field(default_factory=dict)
    deliveries: int = 0
    order_deliveries: int = 0
    retries_replayed: int = 0
    malformed_refused: int = 0
    is_over: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.http = requests.Session()
        self.http.mount("http://", HTTPAdapter(pool_maxsize=_CLIENTS))
        self.sns, self.sqs = self.stack.aws.client("sns"), self.stack.aws.client("sqs")

    def post(self, headers: dict[str, str], body: str) -> requests.Response:
        return self.http.post(f"{self.stack.api_url}/orders", data=body, headers=headers, timeout=60)

    def place(self, order: PlannedOrder) -> tuple[str, int]:
        """Place an order as its client does, with retries; returns its id, and how many got the same response."""
        headers, body = {"Idempotency-Key": order.idempotency_key}, json.dumps(order.body)
        responses = [self.post(headers, body) for _ in range(1 + order.client_retries)]
        responses[0].raise_for_status()
        replayed = sum(response.text == responses[0].text for response in responses[1:])
        self.bars.progress.advance(self.bars.placed)
        return responses[0].json()["order_id"], replayed

    def place_all(self) -> None:
        with _clients() as clients:
            for order, (order_id, replayed) in zip(
                self.plan.orders, clients.map(self.place, self.plan.orders), strict=True
            ):
                self.orders[order_id] = order
                self.retries_replayed += replayed
            responses = clients.map(lambda request: self.post(*request), self.plan.malformed)
            self.malformed_refused = sum(400 <= response.status_code < 500 for response in responses)

    def deliver(self, body: str, channel: Channel) -> None:
        """Deliver a duplicate to the payments queue, under a new message id."""
        if channel is Channel.TOPIC:
            self.sns.publish(TopicArn=self.stack.order_events_topic_arn, Message=body, MessageAttributes=_EVENT_TYPE)
        else:
            self.sqs.send_message(QueueUrl=self.stack.payments_queue_url, MessageBody=body)
        self.deliveries += 1
        self.bars.progress.advance(self.bars.delivered)

    def poison_all(self) -> None:
        for poison in self.plan.poison:
            for channel in poison.deliveries:
                self.deliver(poison.body, channel)

    @contextmanager
    def tapped(self) -> Iterator[str]:
        """A queue of the demo's own, subscribed to the topic: it receives each message that the system publishes."""
        url = self.sqs.create_queue(QueueName="demo-tap")["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        subscription = self.sns.subscribe(
            TopicArn=self.stack.order_events_topic_arn,
            Protocol="sqs",
            Endpoint=arn,
            Attributes={"RawMessageDelivery": "true"},
            ReturnSubscriptionArn=True,
        )
        yield url
        self.sns.unsubscribe(SubscriptionArn=subscription["SubscriptionArn"])

    @contextmanager
    def multiplied(self, tap_url: str) -> Iterator[None]:
        """Deliver duplicates in a thread until all are delivered; if the block fails, the thread ends with it."""
        with ThreadPoolExecutor(1) as tap:
            multiplying = tap.submit(self.multiply, tap_url)
            try:
                yield
                multiplying.result()
            finally:
                self.is_over.set()

    def multiply(self, tap_url: str) -> None:
        """Deliver each message that the tap receives as often as the plan says; ends when it has received all."""
        by_key = {(o.body["customer_id"], o.body["payment_method"], o.amount_minor): o for o in self.plan.orders}
        waiting = set(by_key)
        deadline = time.monotonic() + _IDLE_SECONDS
        while waiting and not self.is_over.is_set() and time.monotonic() < deadline:
            answer = self.sqs.receive_message(QueueUrl=tap_url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            for message in answer.get("Messages", []):
                self.sqs.delete_message(QueueUrl=tap_url, ReceiptHandle=message["ReceiptHandle"])
                key = _identity(message["Body"])
                if key not in waiting:
                    continue
                waiting.remove(key)
                self.deliveries += 1
                self.order_deliveries += 1 + len(by_key[key].extra_deliveries)
                self.bars.progress.advance(self.bars.delivered)
                for channel in by_key[key].extra_deliveries:
                    self.deliver(message["Body"], channel)

    # ------------------------------------------------------------ once the queues are idle

    def follow_up(self, admin: StandInAdmin) -> None:
        """What the customers do next: another card, 3-D Secure, a cancellation, or a refund."""
        at_the_bank = set()
        for order_id, order in self.orders.items():
            match order.follow_up:
                case FollowUp.ANOTHER_CARD:
                    self.ask(f"{order_id}/payments", {"payment_method": "pm_card_visa"})
                case FollowUp.CANCEL:
                    self.ask(f"{order_id}/cancel", {})
                case FollowUp.REFUND:
                    for _ in range(2):
                        self.ask(f"{order_id}/refunds", {"amount": order.refunded_minor})
                case FollowUp.AT_THE_BANK:
                    at_the_bank.add(order_id)
        for intent in admin.ledger().payment_intents:
            if intent["metadata"].get("order_id") in at_the_bank and intent["status"] == "requires_action":
                admin.authenticate(intent["id"], succeed=True)
        is_theirs = [event["data"]["object"]["metadata"].get("order_id") in at_the_bank for event in admin.events()]
        # Each twice, and the newest first.
        indexes = [index for index, theirs in enumerate(is_theirs) if theirs for _ in range(2)]
        admin.deliver_webhooks(order=indexes[::-1])

    def ask(self, path: str, body: dict[str, Any]) -> None:
        headers = {"Idempotency-Key": f"demo-{path}"}
        url = f"{self.stack.api_url}/orders/{path}"
        self.http.post(url, json=body, headers=headers, timeout=60)

    def follow_ups_shown(self) -> int:
        """How many orders show what their customers did next."""
        shown = {
            order_id: self.http.get(f"{self.stack.api_url}/orders/{order_id}", timeout=60).json()
            for order_id, order in self.orders.items()
            if order.follow_up
        }
        return sum(
            shown[order_id]["status"] == ("CANCELED" if order.follow_up is FollowUp.CANCEL else "PAID")
            and sum(each["amount"] for each in shown[order_id]["refunds"] if each["status"] == "SUCCEEDED")
            == order.refunded_minor
            for order_id, order in self.orders.items()
            if order.follow_up
        )

    def count_follow_ups(self, what: FollowUp) -> int:
        return sum(order.follow_up is what for order in self.plan.orders)


@contextmanager
def _clients() -> Iterator[ThreadPoolExecutor]:
    """Concurrent clients; when the block fails, they finish the present request and start no other."""
    clients = ThreadPoolExecutor(_CLIENTS)
    try:
        yield clients
    finally:
        clients.shutdown(cancel_futures=True)


def _identity(body: str) -> tuple[str, str, int] | None:
    """Which planned order a message is about; None for poison."""
    try:
        data = json.loads(body)["data"]
        return data["customer_id"], data["payment_method"], data["amount_minor"]
    except (ValueError, KeyError, TypeError):
        return None


def request_faults(admin: StandInAdmin, plan: Plan) -> None:
    """Configure the stand-in's faults, order by order; its search lags, as Stripe's does."""
    admin.settings(latency_seconds=0.1, search_lag_seconds=30)
    for order in plan.orders:
        if order.fault:
            amount = {"amount": str(order.amount_minor)}
            admin.add_fault(order.fault, amount, seconds=_HANG_SECONDS, path="/v1/payment_intents/*/confirm")


def run(stack: Stack, plan: Plan, bars: Bars, *, seed: int, started: float) -> Report:
    """Send everything in, wait until all queues are idle, and count by the ledger."""
    admin = StandInAdmin(stack.stripe_api_base)
    request_faults(admin, plan)
    traffic = Traffic(stack, plan, bars)
    with traffic.tapped() as tap_url, traffic.multiplied(tap_url):
        traffic.place_all()
        traffic.poison_all()
    try:
        wait_until_idle(
            stack,
            timeout_seconds=_IDLE_SECONDS,
            on_poll=lambda _: bars.progress.update(bars.finalized, completed=_finalized(stack)),
        )
        traffic.follow_up(admin)
        wait_until_idle(stack, timeout_seconds=_IDLE_SECONDS, on_poll=lambda _: None)
        idle = True
    except NotIdle:
        idle = False
    return count(traffic, admin, idle=idle, seed=seed, seconds=time.monotonic() - started)


def _finalized(stack: Stack) -> int:
    """How many rows of the Payments table are in a terminal state."""
    pages = stack.aws.client("dynamodb").get_paginator("scan").paginate(TableName=stack.charges_table)
    return sum(item["state"]["S"] != "PENDING" for page in pages for item in page["Items"])


def count(traffic: Traffic, admin: StandInAdmin, *, idle: bool, seed: int, seconds: float) -> Report:
    """The report, counted from the ledger, the DLQ, and what was sent."""
    plan, ledger = traffic.plan, admin.ledger()
    verdict = judge(traffic.orders, ledger)
    expected = [order for order in plan.orders if order.pays]
    dead = drain(traffic.stack, traffic.stack.payments_dlq_url)
    poison_bodies = {poison.body for poison in plan.poison}
    with_reason = {message["Body"] for message in dead if "reason" in message.get("MessageAttributes", {})}
    offenders = {
        **verdict.offenders,
        "in the DLQ though payable": [m["Body"][:120] for m in dead if m["Body"] not in poison_bodies],
    }
    return Report(
        orders=len(plan.orders),
        orders_payable=len(expected),
        charged_once=len(verdict.charged_once),
        charged_more_than_once=len(offenders["charged more than once"]),
        not_charged=len(offenders["not charged"]),
        charged_wrong_amount=len(offenders["charged a wrong amount"]),
        declined=sum(order.expected is Expected.DECLINED for order in plan.orders),
        declined_but_charged=len(offenders["declined but charged"]),
        requires_action=sum(order.expected is Expected.REQUIRES_ACTION for order in plan.orders),
        requires_action_but_charged=len(offenders["charged without the customer's authentication"]),
        charges_of_nobody=len(offenders["charges of nobody"]),
        another_card=traffic.count_follow_ups(FollowUp.ANOTHER_CARD),
        at_the_bank=traffic.count_follow_ups(FollowUp.AT_THE_BANK),
        canceled=traffic.count_follow_ups(FollowUp.CANCEL),
        refunded=traffic.count_follow_ups(FollowUp.REFUND),
        follow_ups_shown=traffic.follow_ups_shown(),
        poison=len(plan.poison),
        poison_in_dlq=len(poison_bodies & with_reason),
        payable_in_dlq=len(offenders["in the DLQ though payable"]),
        malformed=len(plan.malformed),
        malformed_refused=traffic.malformed_refused,
        client_retries=sum(order.client_retries for order in plan.orders),
        client_retries_replayed=traffic.retries_replayed,
        deliveries=traffic.deliveries,
        deliveries_planned=plan.deliveries,
        faults_met=admin.faults_met(),
        faults_planned=sum(order.fault is not None for order in plan.orders),
        duplicates_ignored=traffic.order_deliveries - len(traffic.orders),
        stripe_requests=ledger.counts.get("requests", 0),
        stripe_replays=ledger.counts.get("replays", 0),
        workers_killed=Path(traffic.stack.aws_log).read_text(errors="replace").count(_KILLED),
        amount_expected=sum(order.amount_minor for order in expected),
        amount_charged=sum(charge.amount_minor for charge in ledger.charges),
        refunds_expected=sum(order.refunded_minor for order in plan.orders),
        refunds_made=sum(refund["amount"] for refund in ledger.refunds),
        seconds=round(seconds, 1),
        seed=seed,
        idle=idle,
        offenders=offenders,
    )


def drain(stack: Stack, queue_url: str) -> list[dict[str, Any]]:
    """Receive and delete all messages of a queue."""
    sqs, messages = stack.aws.client("sqs"), list[dict[str, Any]]()
    while True:
        batch = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]).get(
            "Messages", []
        )
        if not batch:
            return messages
        for message in batch:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
        messages += batch


@contextmanager
def shown(console: Console, plan: Plan) -> Iterator[Bars]:
    """The progress bars, for as long as the block lasts; only on a terminal."""
    columns = (TextColumn("{task.description:<26}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Bars(
            progress,
            placed=progress.add_task("orders placed", total=len(plan.orders)),
            delivered=progress.add_task("messages delivered", total=plan.deliveries),
            finalized=progress.add_task("orders finalized", total=len(plan.orders)),
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Arguments(prog="make demo", description=__doc__)
    parser.add_argument(
        "--orders", type=at_least(ORDERS_MIN, "ORDERS"), default=60, help=f"how many, at least {ORDERS_MIN}"
    )
    parser.add_argument("--seed", type=seed_of, default=None, help="repeats a run; drawn at random if not given")
    parser.add_argument("--project", type=Path, default=PROJECT, help="the copy of the project to deploy")
    parser.add_argument("--work-dir", type=Path, default=PROJECT / ".local" / "demo")
    parser.add_argument("--report", type=Path, default=PROJECT / ".local" / "demo-report.json")
    return parser.parse_args(arguments)


def demonstrate(options: argparse.Namespace, console: Console) -> int:
    """Run the demo; returns 0 if every promise was kept, 1 if not."""
    started, work_dir = time.monotonic(), options.work_dir.resolve()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    plan = make_plan(options.orders, seed)
    on_progress: Callable[[str], None] = lambda message: console.print(f"• {message}", highlight=False)  # noqa: E731
    with (
        sole_user_of(work_dir),
        running_stack(work_dir=work_dir, project=options.project, seed=seed, on_progress=on_progress) as stack,
    ):
        on_progress(f"placing {len(plan.orders)} orders, with seed {seed}")
        with shown(console, plan) as bars:
            report = run(stack, plan, bars, seed=seed, started=started)
    options.report.write_text(report.as_json())
    show(report, console)
    return 0 if report.ok else 1


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    return run_in_terminal(lambda console: demonstrate(options, console))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
