"""The parts of the payment service's functions, each with the environment variables that it is made of."""

import time
from dataclasses import replace

from onecharge.contract.events import Event
from onecharge.payments.payment_intents import PaymentIntents
from onecharge.payments.payments_table import PaymentStore
from onecharge.payments.stripe_client import StripeAccount
from onecharge.payments.stripe_rate import StripeRate, share
from onecharge.payments.stripe_responses import Deferred
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore
from onecharge.runtime.parts import Parts, part
from onecharge.runtime.secrets import Secret
from onecharge.runtime.topics import Topic


class PaymentParts(Parts):
    """What the payment service's functions are made of. template.yaml: PaymentVariables."""

    @part
    def bounds(self) -> TimeBounds:
        return TimeBounds(int(self.environment["FUNCTION_TIMEOUT_SECONDS"]))

    @part
    def payments(self) -> PaymentStore:
        return PaymentStore(self.dynamodb, self.environment["PAYMENTS_TABLE"])

    @part
    def stripe(self) -> StripeAccount:
        return StripeAccount(
            Secret(self.secretsmanager, self.environment["STRIPE_SECRET_ARN"]),
            api_base=self.environment["STRIPE_API_BASE"],
            bounds=self.bounds,
            must_be_live=self.environment["PROFILE"] == "live",
            count=self.counts,
        )

    @part
    def rate(self) -> StripeRate:
        """This process's share of what Stripe allows for one endpoint."""
        per_second, workers = self.environment["CHARGES_PER_SECOND"], self.environment["CHARGE_CONCURRENCY"]
        return StripeRate(share(float(per_second), int(workers)))

    def payment_intents(self) -> PaymentIntents:
        """Stripe, with its key as it is now. Raises SecretUnavailable."""
        return PaymentIntents(self.stripe.client(), self.environment["SHOP"])

    def checkpoints[C: Checkpoint](self, checkpoint: type[C]) -> CheckpointStore[C]:
        """The service's State table, for checkpoints of this class."""
        return CheckpointStore(self.dynamodb, self.environment["PAYMENTS_STATE_TABLE"], checkpoint)

    def tools(self) -> Tools:
        """What one delivery, event or row is worked on with, until its deadline.

        Raises SecretUnavailable: the key cannot be read: an outage, counted as an alarm.
        """
        return Tools(
            payments=self.payments,
            stripe=self.payment_intents(),
            rate=self.rate,
            clock=time.time,
            logger=self.logger,
            count=self.counts,
            lease_seconds=self.bounds.lease_seconds,
            deadline=self.bounds.deadline(time.time()),
            requires_action_seconds=int(self.environment["REQUIRES_ACTION_SECONDS"]),
        )


class SyncParts(PaymentParts):
    """Those of the functions that sync rows, and tell the outcomes of refunds. template.yaml: SyncVariables."""

    @part
    def payment_events(self) -> Topic:
        """Where the outcomes of refunds go."""
        return Topic(self.sns, self.environment["PAYMENT_EVENTS_TOPIC_ARN"], self.logger, self.counts)

    def tools(self) -> Tools:
        return replace(super().tools(), publish=self.publish)

    def publish(self, event: Event) -> None:
        """Publish the outcome of a refund. Raises Deferred and botocore's errors."""
        for failure in self.payment_events.publish([event]):
            raise Deferred(f"SNS does not accept the outcome: {failure.code}")
