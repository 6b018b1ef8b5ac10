"""stripe_webhook behind its route, over a shop: signed events in."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

from local.given_stripe import STRIPE_WEBHOOK_SECRET
from onecharge.payments.stripe_events import NewestReceived
from stripe_standin.webhook_endpoints import signature
from stripe_webhook.http_route import WebhookRoute
from tests.shop.builders import T0
from tests.shop.scripted_stripe import ASKS_FOR_ACTION
from tests.shop.shop import Shop
from tests.support.harness import LambdaContext, Sample

Event = dict[str, Any]


def event_of(type_: str, kind: str, *, created: int = T0, **thing: Any) -> Event:
    data = {"object": {"object": kind, **thing}}
    return {"id": f"evt_{type_}", "object": "event", "type": type_, "created": created, "data": data}


@dataclass
class SigningSecret:
    """The endpoint's secret, as the route has cached it, and as it is."""

    cached: str
    actual: str

    def current(self) -> str:
        return self.cached

    def read_again(self) -> bool:
        is_other = self.cached != self.actual
        self.cached = self.actual
        return is_other


@dataclass
class Endpoint(Shop):
    """A shop, and what Stripe sends to it."""

    sample: Sample = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.secret = SigningSecret(STRIPE_WEBHOOK_SECRET, STRIPE_WEBHOOK_SECRET)
        self.route = WebhookRoute(
            secret=self.secret,  # type: ignore[arg-type]  # As runtime.secrets.Secret.
            make_tools=self.tools,
            is_live=lambda: False,
            newest=NewestReceived(self.received),
            logger=self.log.logger,
            count=self.counted.append,
        )

    # ------------------------------------------------------------ what has happened before

    def paid_at_the_bank(self) -> Event:
        """The event of a success that the row does not show yet."""
        self.deliver(payment_method=ASKS_FOR_ACTION)
        self.counted.clear()
        return self.stripe.show("pi_0", "succeeded")

    # ------------------------------------------------------------ what Stripe sends

    def send(self, event: Event, **how: Any) -> int:
        """Send the event, signed; returns the answer's status."""
        return self.post(body_of(event), **how)[0]

    def post(
        self, body: str, *, header: str | None = None, secret: str = STRIPE_WEBHOOK_SECRET
    ) -> tuple[int, dict[str, Any]]:
        return self.request(body, header or signature(body, secret, int(time.time())))

    def request(self, body: str, header: str, *, encoded: bool = False) -> tuple[int, dict[str, Any]]:
        http = self.sample("stripe_webhook/payment_intent_succeeded")
        del http["headers"]["stripe-signature"]
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
