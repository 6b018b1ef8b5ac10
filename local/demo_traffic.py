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

    def __post_init__(self) -> None:
        self.http = requests.Session()
        self.http.mount("http://", HTTPAdapter(pool_maxsize=_CLIENTS))
        issuer = self.stack.issuer
        customers = {_NOBODY, *(order.customer_id for order in self.plan.orders)}
        self.tokens = {customer: issuer.token(customer) for customer in customers}
        self.staff_token = issuer.token("staff_demo", REFUND_SCOPE)
        self.sns, self.sqs = self.stack.aws.client("sns"), self.stack.aws.client("sqs")

    def request(self, method: str, path: str, token: str, body: str = "", **headers: str) -> requests.Response:
        url, headers = f"{self.stack.api_url}/orders{path}", {**headers, "Authorization": f"Bearer {token}"}
        return self.http.request(method, url, data=body, headers=headers, timeout=60)

    def place(self, order: PlannedOrder) -> tuple[str, int]:
        """Place an order as its client does, with retries; returns its id, and how many got the same response."""
        key, token = {"Idempotency-Key": order.idempotency_key}, self.tokens[order.customer_id]
        tries = range(1 + order.client_retries)
        responses = [self.request("POST", "", token, json.dumps(order.body), **key) for _ in tries]
        responses[0].raise_for_status()
        replayed = sum(response.text == responses[0].text for response in responses[1:])
        return responses[0].json()["order_id"], replayed

    def place_all(self) -> None:
        clients = ThreadPoolExecutor(_CLIENTS)
        try:
            placed = clients.map(self.place, self.plan.orders)
            for order, (order_id, replayed) in zip(self.plan.orders, placed, strict=True):
                self.orders[order_id] = order
                self.progress.placed = len(self.orders)
                self.retries_replayed += replayed
        finally:
            clients.shutdown(cancel_futures=True)
        for headers, body in self.plan.malformed:
            refused = self.request("POST", "", self.tokens[_NOBODY], body, **headers)
            self.malformed_refused += refused.status_code == 400

    def deliver(self, body: str, channel: Channel) -> None:
        """Deliver a duplicate to the payments queue, under a new message id."""
        if channel is Channel.TOPIC:
            self.sns.publish(TopicArn=self.stack.order_events_topic_arn, Message=body, MessageAttributes=_EVENT_TYPE)
        else:
            self.sqs.send_message(QueueUrl=self.stack.payments_queue_url, MessageBody=body)
        self.progress.count_delivery()

    def poison_all(self) -> None:
        for body, channels in self.plan.poison:
            for channel in channels:
                self.deliver(body, channel)

    @contextmanager
    def multiplied(self) -> Iterator[None]:
        """Deliver duplicates in a thread until all are delivered; if the block fails, the thread ends with it.

        A queue of the demo's own is subscribed to the topic: it receives each message that the system publishes.
        """
        tap_url, is_over = open_tap(self.stack, "demo-tap"), Event()
        with ThreadPoolExecutor(1) as thread:
            multiplying = thread.submit(self.multiply, tap_url, is_over)
            try:
                yield
                multiplying.result()
            finally:
                is_over.set()

    def multiply(self, tap_url: str, is_over: Event) -> None:
        """Deliver each message that the tap receives as often as the plan says; ends when it has received all."""
        waiting = {(o.customer_id, o.body["payment_method"], o.amount_minor): o for o in self.plan.orders}
        deadline = time.monotonic() + _ALL_RECEIVED_SECONDS
        while waiting and not is_over.is_set() and time.monotonic() < deadline:
            answer = self.sqs.receive_message(QueueUrl=tap_url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            for message in answer.get("Messages", []):
                self.sqs.delete_message(QueueUrl=tap_url, ReceiptHandle=message["ReceiptHandle"])
                if order := waiting.pop(_identity(message["Body"]), None):
                    self.progress.count_delivery()
                    self.order_deliveries += 1 + len(order.extra_deliveries)
                    for channel in order.extra_deliveries:
                        self.deliver(message["Body"], channel)

    # ------------------------------------------------------------ once the queues are idle

    def follow_up(self) -> None:
        """What the customers do next, each in its own way."""
        for order_id, order in self.orders.items():
            match order.follow_up:
                case FollowUp.ANOTHER_CARD:
                    self.ask(order, f"/{order_id}/payments", {"payment_method": "pm_card_visa"})
                case FollowUp.CANCEL:
                    self.ask(order, f"/{order_id}/cancel", {})
                case FollowUp.REFUND:
                    for _ in range(2):
                        self.ask(order, f"/{order_id}/refunds", {"amount": order.refunded_minor})
        self.authenticate()

    def ask(self, order: PlannedOrder, path: str, body: dict[str, Any]) -> None:
        token = self.staff_token if order.follow_up is FollowUp.REFUND else self.tokens[order.customer_id]
        self.request("POST", path, token, json.dumps(body), **{"Idempotency-Key": f"demo-{path}"})

    def authenticate(self) -> None:
        """What customers do at their banks; Stripe reports it by webhooks, each twice, and the newest first."""
        admin = self.stack.stripe
        at_the_bank = {order_id for order_id, order in self.orders.items() if order.follow_up is FollowUp.AT_THE_BANK}
        for intent in admin.ledger().payment_intents:
            if intent["metadata"].get("order_id") in at_the_bank and intent["status"] == "requires_action":
                admin.authenticate(intent["id"], succeed=True)
        is_theirs = [event["data"]["object"]["metadata"].get("order_id") in at_the_bank for event in admin.events()]
        indexes = [index for index, theirs in enumerate(is_theirs) if theirs for _ in range(2)]
        admin.deliver_webhooks(order=indexes[::-1])

    def follow_ups_shown(self) -> int:
        """How many orders show, in the API, what their customers did next."""
        shown = 0
        for order_id, order in self.orders.items():
            if order.follow_up:
                response = self.request("GET", f"/{order_id}", self.tokens[order.customer_id]).json()
                refunded = sum(each["amount"] for each in response["refunds"] if each["status"] == "SUCCEEDED")
                status = "CANCELED" if order.follow_up is FollowUp.CANCEL else "PAID"
                shown += (response["status"], refunded) == (status, order.refunded_minor)
        return shown


def _identity(body: str) -> tuple[str, str, int]:
    """Which planned order a message is about; poison is about none."""
    try:
        data = json.loads(body)["data"]
        return data["customer_id"], data["payment_method"], data["amount_minor"]
    except (ValueError, KeyError, TypeError):
        return "", "", 0
