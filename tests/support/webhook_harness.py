"""stripe_webhook behind its route: signed events in, over a DynamoDB in memory and Stripe in process."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from local.given_stripe import STRIPE_WEBHOOK_SECRET
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.stripe_events import NewestReceived, Received
from onecharge.runtime.checkpoints import CheckpointStore
from stripe_standin.webhook_endpoints import signature
from stripe_webhook.http_route import WebhookRoute
from tests.shop.dynamodb import MemoryDynamoDB, NoFaults
from tests.shop.stripe import client_of
from tests.support.harness import LambdaContext, Log, Sample
from tests.support.payment_service import T0, PaymentService
from tests.support.samples import unsigned
from tests.support.scripted_stripe import ASKS_FOR_ACTION

Event = dict[str, Any]


class WatchedIo(NoFaults):
    """Keeps what was asked of DynamoDB; one operation may be made to fail."""

    def __init__(self) -> None:
        super().__init__(T0)
        self.asked: list[str] = []
        self.failing = ""

    def pause(self, where: str) -> None:
        if not where.endswith("answered"):
            self.asked.append(where)

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        return kinds[0] if where == self.failing else None


@dataclass
class SigningSecrets:
    """The endpoint's secrets, as the route has cached them, and as they are."""

    cached: tuple[str, ...]
    actual: tuple[str, ...]
    read: int = 0

    def with_previous(self) -> tuple[str, ...]:
        return self.cached

    def read_again(self) -> bool:
        self.read += 1
        is_other = self.cached != self.actual
        self.cached = self.actual
        return is_other


@dataclass
class WebhookHarness:
    """The function behind its route, with a Payments table and Stripe in process."""

    log: Log
    sample: Sample
    io: WatchedIo = field(default_factory=WatchedIo)
    secrets: SigningSecrets = field(
        default_factory=lambda: SigningSecrets((STRIPE_WEBHOOK_SECRET,), (STRIPE_WEBHOOK_SECRET,))
    )

    def __post_init__(self) -> None:
        keys = {"payments": ("order_id",), "refunds": ("order_id", "refund_id"), "payments-state": ("name",)}
        self.dynamodb: Any = MemoryDynamoDB(keys=keys, io=self.io)
        self.payments = PaymentService(self.dynamodb, self.log.logger)
        self.stripe, self.counted = self.payments.stripe, self.payments.counted
        self.received = CheckpointStore(self.dynamodb, "payments-state", Received)  # type: ignore[arg-type]  # Its methods, in memory.
        self.route = WebhookRoute(
            secret=self.secrets,
            make_tools=self.payments.reconcile_tools,
            is_live=lambda: False,
            newest=NewestReceived(self.received),
            instruments=self.payments.instruments,
        )

    # ------------------------------------------------------------ what has happened before

    def at_the_bank(self) -> str:
        """The customer of order a has been sent to the bank; returns the PaymentIntent's id."""
        self.payments.charge(card=ASKS_FOR_ACTION)
        self.counted.clear()
        return "pi_0"

    def paid(self) -> str:
        """Order a is paid; returns the PaymentIntent's id."""
        self.payments.charge()
        self.counted.clear()
        return "pi_0"

    def paid_at_the_bank(self) -> Event:
        """The event of a success that the row does not show yet."""
        return self.stripe.show(self.at_the_bank(), "succeeded")

    def another_payment_intent(self) -> str:
        """The order has a second one, which its row does not name, as after two restored tables; returns its id."""
        first = self.stripe.intent("pi_0")
        parameters = {"amount": first.amount, "currency": first.currency, "metadata": first.metadata}
        made = client_of(self.stripe).v1.payment_intents.create(parameters)
        return str(made.id)

    @property
    def row(self) -> Payment:
        return self.payments.row()

    # ------------------------------------------------------------ what Stripe sends

    def send(self, event: Event, **how: Any) -> int:
        return self.post(body_of(event), **how)[0]

    def post(
        self, body: str, *, header: str | None = None, secret: str = STRIPE_WEBHOOK_SECRET, age_seconds: int = 0
    ) -> tuple[int, dict[str, Any]]:
        signed = signature(body, secret, int(time.time()) - age_seconds)
        return self.request(body, signed if header is None else header)

    def request(self, body: str, header: str, *, encoded: bool = False) -> tuple[int, dict[str, Any]]:
        http = unsigned(self.sample)
        http["headers"] |= {"stripe-signature": header} if header else {}
        http |= {"body": body, "isBase64Encoded": encoded}
        return self.resolve(http)

    def resolve(self, http: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.io.asked.clear()
        self.stripe.requests.clear()
        answer = self.route.resolver.resolve(http, LambdaContext())
        return answer["statusCode"], json.loads(answer["body"])


def body_of(event: Event) -> str:
    """The event as Stripe writes it."""
    return json.dumps(event, indent=2)
