"""stripe_webhook: reconciles payments when Stripe sends an event. This file only puts the parts together.

POST /stripe/events ─► http_route.py: verify ─► payments/stripe_events.py: parse ─► payments/apply.py: sync
"""

from typing import Any

from onecharge.payments.parts import SyncParts
from onecharge.payments.stripe_events import NewestReceived, Received
from onecharge.runtime.parts import Context, lambda_handler, part
from onecharge.runtime.secrets import Secret
from stripe_webhook.http_route import WebhookRoute


class StripeWebhookParts(SyncParts):
    @part
    def route(self) -> WebhookRoute:
        return WebhookRoute(
            secret=Secret(self.secretsmanager, self.environment["STRIPE_WEBHOOK_SECRET_ARN"]),
            make_tools=self.tools,
            is_live=lambda: self.stripe.is_live(),
            newest=NewestReceived(self.checkpoints(Received)),
            logger=self.logger,
            count=self.counts,
        )


@lambda_handler(StripeWebhookParts)
def handler(parts: StripeWebhookParts, event: dict[str, Any], context: Context) -> dict[str, Any]:
    """Answer one HTTP request."""
    return parts.route.resolver.resolve(event, context)
