"""What the demo sends to a running stack: orders, duplicates, poison, and what the customers do next."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import requests
from requests.adapters import HTTPAdapter

from local.demo_live import Progress
from local.demo_plan import Channel, FollowUp, Plan, PlannedOrder
from local.issuer import REFUND_SCOPE
from local.observe import open_tap
from local.stack import Stack
from stripe_standin.admin import StandInAdmin

_CLIENTS = 4
_NOBODY = "cus_demo"
"""A customer whose requests are all malformed."""
_ALL_RECEIVED_SECONDS = 150
_EVENT_TYPE = {"event_type": {"DataType": "String", "StringValue": "onecharge.order.placed"}}


@dataclass
class Traffic:
    """Everything that is sent to a running stack, and counts of the responses."""

    stack: Stack
    plan: Plan
    progress: Progress
    orders: dict[str, PlannedOrder] = field(default_factory=dict)
    order_deliveries: int = 0
    retries_replayed: int = 0
    malformed_refused: int = 0
    is_over: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        self.http = requests.Session()
        self.http.mount("http://", HTTPAdapter(pool_maxsize=_CLIENTS))
        issuer = self.stack.issuer
        customers = {_NOBODY, *(order.customer_id for order in self.plan.orders)}
        self.tokens = {customer: issuer.token(customer) for customer in customers}
        self.staff_token = issuer.token("staff_demo", REFUND_SCOPE)
        self.sns, self.sqs = self.stack.aws.client("sns"), self.stack.aws.client("sqs")

    def post(self, customer_id: str, headers: dict[str, str], body: str) -> requests.Response:
        headers = {**headers, **_bearer(self.tokens[customer_id])}
        return self.http.post(f"{self.stack.api_url}/orders", data=body, headers=headers, timeout=60)

    def place(self, order: PlannedOrder) -> tuple[str, int]:
        """Place an order as its client does, with retries; returns its id, and how many got the same response."""
        headers, body = {"Idempotency-Key": order.idempotency_key}, json.dumps(order.body)
        responses = [self.post(order.customer_id, headers, body) for _ in range(1 + order.client_retries)]
        responses[0].raise_for_status()
        replayed = sum(response.text == responses[0].text for response in responses[1:])
        return responses[0].json()["order_id"], replayed

    def place_all(self) -> None:
        with _clients() as clients:
            for order, (order_id, replayed) in zip(
                self.plan.orders, clients.map(self.place, self.plan.orders), strict=True
            ):
                self.orders[order_id] = order
                self.progress.placed = len(self.orders)
                self.retries_replayed += replayed
            responses = clients.map(lambda request: self.post(_NOBODY, *request), self.plan.malformed)
            self.malformed_refused = sum(response.status_code == 400 for response in responses)

    def deliver(self, body: str, channel: Channel) -> None:
        """Deliver a duplicate to the payments queue, under a new message id."""
        if channel is Channel.TOPIC:
            self.sns.publish(TopicArn=self.stack.order_events_topic_arn, Message=body, MessageAttributes=_EVENT_TYPE)
        else:
            self.sqs.send_message(QueueUrl=self.stack.payments_queue_url, MessageBody=body)
        self.progress.count_delivery()

    def poison_all(self) -> None:
        for poison in self.plan.poison:
            for channel in poison.deliveries:
                self.deliver(poison.body, channel)

    @contextmanager
    def multiplied(self) -> Iterator[None]:
        """Deliver duplicates in a thread until all are delivered; if the block fails, the thread ends with it.

        A queue of the demo's own is subscribed to the topic: it receives each message that the system publishes.
        """
        tap = open_tap(self.stack, "demo-tap")
        with ThreadPoolExecutor(1) as thread:
            multiplying = thread.submit(self.multiply, tap.url)
            try:
                yield
                multiplying.result()
            finally:
                self.is_over.set()

    def multiply(self, tap_url: str) -> None:
        """Deliver each message that the tap receives as often as the plan says; ends when it has received all."""
        by_key = {(o.customer_id, o.body["payment_method"], o.amount_minor): o for o in self.plan.orders}
        waiting = set(by_key)
        deadline = time.monotonic() + _ALL_RECEIVED_SECONDS
        while waiting and not self.is_over.is_set() and time.monotonic() < deadline:
            answer = self.sqs.receive_message(QueueUrl=tap_url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            for message in answer.get("Messages", []):
                self.sqs.delete_message(QueueUrl=tap_url, ReceiptHandle=message["ReceiptHandle"])
                key = _identity(message["Body"])
                if key not in waiting:
                    continue
                waiting.remove(key)
                self.progress.count_delivery()
                self.order_deliveries += 1 + len(by_key[key].extra_deliveries)
                for channel in by_key[key].extra_deliveries:
                    self.deliver(message["Body"], channel)

    # ------------------------------------------------------------ once the queues are idle

    def follow_up(self, admin: StandInAdmin) -> None:
        """What the customers do next, each in its own way."""
        for order_id, order in self.orders.items():
            match order.follow_up:
                case FollowUp.ANOTHER_CARD:
                    self.ask(order, f"{order_id}/payments", {"payment_method": "pm_card_visa"})
                case FollowUp.CANCEL:
                    self.ask(order, f"{order_id}/cancel", {})
                case FollowUp.REFUND:
                    for _ in range(2):
                        self.ask(order, f"{order_id}/refunds", {"amount": order.refunded_minor})
        self.authenticate(admin)

    def authenticate(self, admin: StandInAdmin) -> None:
        """What customers do at their banks; Stripe reports it by webhooks."""
        at_the_bank = {order_id for order_id, order in self.orders.items() if order.follow_up is FollowUp.AT_THE_BANK}
        for intent in admin.ledger().payment_intents:
            if intent["metadata"].get("order_id") in at_the_bank and intent["status"] == "requires_action":
                admin.authenticate(intent["id"], succeed=True)
        is_theirs = [event["data"]["object"]["metadata"].get("order_id") in at_the_bank for event in admin.events()]
        # Each twice, and the newest first.
        indexes = [index for index, theirs in enumerate(is_theirs) if theirs for _ in range(2)]
        admin.deliver_webhooks(order=indexes[::-1])

    def ask(self, order: PlannedOrder, path: str, body: dict[str, Any]) -> None:
        token = self.staff_token if order.follow_up is FollowUp.REFUND else self.tokens[order.customer_id]
        headers = {"Idempotency-Key": f"demo-{path}", **_bearer(token)}
        url = f"{self.stack.api_url}/orders/{path}"
        self.http.post(url, json=body, headers=headers, timeout=60)

    def get(self, customer_id: str, order_id: str) -> requests.Response:
        headers = _bearer(self.tokens[customer_id])
        return self.http.get(f"{self.stack.api_url}/orders/{order_id}", headers=headers, timeout=60)

    def follow_ups_shown(self) -> int:
        """How many orders show what their customers did next."""
        followed = {order_id: order for order_id, order in self.orders.items() if order.follow_up}
        return sum(_shows(self.get(order.customer_id, each).json(), order) for each, order in followed.items())


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _shows(shown: dict[str, Any], order: PlannedOrder) -> bool:
    """Whether the order, as the API shows it, is what its customer's follow-up makes of it."""
    status = "CANCELED" if order.follow_up is FollowUp.CANCEL else "PAID"
    refunded = sum(each["amount"] for each in shown["refunds"] if each["status"] == "SUCCEEDED")
    return (shown["status"], refunded) == (status, order.refunded_minor)


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
