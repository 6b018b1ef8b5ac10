"""A client of a deployed stack: it places orders over HTTP, waits, and compares with Stripe's ledger."""

import json
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import requests

from local.issuer import REFUND_SCOPE
from local.observe import drain, log_events
from local.price_list import sold
from local.stack import Stack
from stripe_standin.admin import LedgerCharge

SKU, CURRENCY, PRICE = sold()
"""What is ordered of the shipped price list, and what one piece costs."""
AMOUNT = 2 * PRICE
"""What `DeployedShop.order` costs."""
DECLINED_CARD = "pm_card_visa_chargeDeclinedInsufficientFunds"
THREE_D_SECURE_CARD = "pm_card_threeDSecure2Required"
# A delivery whose function has timed out comes back after the visibility timeout, 180 s at most: even then, on a busy
# machine, a test waits for it.
PATIENCE_SECONDS = 300


def eventually[Seen](see: Callable[[], Seen], wanted: Callable[[Seen], bool]) -> Seen:
    """What `see` returns once it is as wanted, or what it returned last when the time is up."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        seen = see()
        if wanted(seen) or time.monotonic() > deadline:
            return seen
        time.sleep(0.3)


def signed_in(token: str) -> requests.Session:
    """Sends the access token with each request."""
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {token}"
    return session


def shop_of(stack: Stack) -> str:
    """The shop's name in order ids and at Stripe."""
    [found] = stack.aws.client("cloudformation").describe_stacks(StackName=stack.stack_name)["Stacks"]
    return next(str(each["OutputValue"]) for each in found["Outputs"] if each["OutputKey"] == "ShopId")


def forget_dead_letters(stack: Stack) -> None:
    """Other tests of this stack leave some, in every DLQ."""
    for url in stack.aws.client("sqs").list_queues(QueueNamePrefix=stack.stack_name)["QueueUrls"]:
        if "dlq" in url.lower():
            drain(stack, url)


class DeployedShop:
    """A shop that uses the API of a deployed stack for one customer, and reads Stripe's ledger."""

    def __init__(self, stack: Stack, customer: str = "cus_e2e") -> None:
        self.stack, self.stripe = stack, stack.stripe
        self._opened = time.time()
        self.http = signed_in(stack.issuer.token(customer))
        self.staff = signed_in(stack.issuer.token("staff_e2e", REFUND_SCOPE))

    def send(
        self, body: Any, key: str | None = None, path: str = "", *, by: requests.Session | None = None
    ) -> requests.Response:
        """POST to /orders, or to a path under it; a text is sent as it is."""
        data, headers = body if isinstance(body, str) else json.dumps(body), {"Idempotency-Key": key or str(uuid4())}
        url = f"{self.stack.api_url}/orders{path}"
        return (by or self.http).post(url, data, headers=headers, timeout=PATIENCE_SECONDS)

    def body(self, **changes: Any) -> dict[str, Any]:
        items = [{"sku": SKU, "quantity": 2}]
        return {"currency": CURRENCY, "payment_method": "pm_card_visa", "items": items, **changes}

    def order(self, key: str | None = None, **changes: Any) -> requests.Response:
        return self.send(self.body(**changes), key)

    def post(self, path: str, key: str | None = None, **body: Any) -> requests.Response:
        """A request about an order: `post(f"{order_id}/cancel")`."""
        return self.send(body, key, f"/{path}")

    def refund(self, order_id: str, key: str | None = None, **body: Any) -> requests.Response:
        """A request of the staff, about whichever customer's order."""
        return self.send(body, key, f"/{order_id}/refunds", by=self.staff)

    def get(self, order_id: str) -> requests.Response:
        return self.http.get(f"{self.stack.api_url}/orders/{order_id}", timeout=PATIENCE_SECONDS)

    def decided_status(self, order_id: str) -> str:
        """Once neither a payment nor a cancellation is under way."""
        # A busy machine's 503 is a problem, whose `status` is no order's.
        waits = ("PENDING", "CANCELING", "503")
        return eventually(lambda: str(self.get(order_id).json()["status"]), lambda status: status not in waits)

    def client_secret(self, order_id: str) -> str | None:
        """What the customer's page is answered, once it is answered."""
        url = f"{self.stack.api_url}/orders/{order_id}/payment"
        answer = eventually(lambda: self.http.get(url, timeout=PATIENCE_SECONDS), lambda answer: answer.ok)
        secret: str | None = answer.json()["client_secret"]
        return secret

    def charges(self, order_id: str) -> list[LedgerCharge]:
        return self.stripe.ledger().charges_of(order_id)

    def intents(self, order_id: str) -> list[Any]:
        """The order's PaymentIntents, as Stripe has them."""
        return [each for each in self.stripe.ledger().payment_intents if each["metadata"].get("order_id") == order_id]

    def stored_orders(self) -> int:
        return int(self.stack.aws.client("dynamodb").scan(TableName=self.stack.orders_table)["Count"])

    def placed(self, payment_method: str, status: str) -> str:
        """The id of a new order, once it has this status."""
        order_id = str(self.order(payment_method=payment_method).json()["order_id"])
        assert self.decided_status(order_id) == status
        return order_id

    def deliver(self, body: str) -> None:
        """Send a message to the payments queue, as a redrive does."""
        sqs, url = self.stack.aws.client("sqs"), self.stack.payments_queue_url
        fifo = {"MessageGroupId": "g", "MessageDeduplicationId": str(uuid4())}
        sqs.send_message(QueueUrl=url, MessageBody=body, **(fifo if url.endswith(".fifo") else {}))

    def log(self) -> str:
        """All that the functions have logged since this shop opened, as CloudWatch Logs has it."""
        since_ms = int(self._opened * 1000)
        events = log_events(self.stack.aws.client("logs"), f"/aws/lambda/{self.stack.stack_name}", since_ms=since_ms)
        return "\n".join(event["message"] for event in events)
