"""The parts of the payment service's functions, each with the environment variables that it is made of."""

import time

from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.placed_again import LookUpPlacedBefore, PlacedAgain
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.stripe_client import StripeAccount
from onecharge.payments.stripe_gateway import WINDOW_PARTS, StripeGateway
from onecharge.payments.stripe_rate import StripeRate, share
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from onecharge.runtime.checkpoints import Checkpoint, CheckpointStore
from onecharge.runtime.parallel import Threads
from onecharge.runtime.parts import Parts, part
from onecharge.runtime.secrets import Secret


class StripeParts(Parts):
    """What reads payments, and asks Stripe."""

    @part
    def bounds(self) -> TimeBounds:
        return TimeBounds.of(int(self.environment["FUNCTION_TIMEOUT_SECONDS"]))

    @part
    def payments(self) -> PaymentStore:
        return PaymentStore(self.dynamodb, self.environment["PAYMENTS_TABLE"])

    @part
    def stripe(self) -> StripeAccount:
        secret = Secret(self.secretsmanager, self.environment["STRIPE_SECRET_ARN"])
        api_base = self.environment["STRIPE_API_BASE"]
        return StripeAccount(secret, api_base=api_base, bounds=self.bounds, count=self.counts)


class PaymentParts(StripeParts):
    """What charges, refunds or reconciles. template.yaml calls its environment variables PaymentVariables."""

    @part
    def instruments(self) -> Instruments:
        return Instruments(time.time, self.logger, self.counts)

    @part
    def refunds(self) -> RefundStore:
        return RefundStore(self.dynamodb, self.environment["REFUNDS_TABLE"])

    @part
    def rate(self) -> StripeRate:
        """This process's share of what Stripe allows for one endpoint."""
        per_second, workers = self.environment["CHARGES_PER_SECOND"], self.environment["CHARGE_CONCURRENCY"]
        return StripeRate(share(float(per_second), int(workers)))

    @part
    def lookups(self) -> Threads:
        """All lookups share the threads, as they share Stripe's limit."""
        return Threads(WINDOW_PARTS)

    @part
    def look_up_placed_before(self) -> LookUpPlacedBefore:
        return LookUpPlacedBefore(self.checkpoints(PlacedAgain))

    @part
    def terms_version(self) -> int:
        return int(self.environment["TERMS_VERSION"])

    @part
    def requires_action_seconds(self) -> int:
        return int(self.environment["REQUIRES_ACTION_SECONDS"])

    def checkpoints[C: Checkpoint](self, checkpoint: type[C]) -> CheckpointStore[C]:
        """The service's State table, for checkpoints of this class."""
        return CheckpointStore(self.dynamodb, self.environment["PAYMENTS_STATE_TABLE"], checkpoint)

    def tools(self) -> Tools:
        """What one delivery, event or row is worked on with, until its deadline: with the Stripe key as it is now.

        Raises SecretUnavailable: the key cannot be read: an outage, counted as an alarm.
        """
        return Tools(
            payments=self.payments,
            refunds=self.refunds,
            stripe=StripeGateway(self.stripe.client(), parallel=self.lookups, terms_version=self.terms_version),
            instruments=self.instruments,
            rate=self.rate,
            lease_seconds=self.bounds.lease_seconds,
            deadline=self.bounds.deadline(self.instruments.clock()),
            look_up_placed_before=self.look_up_placed_before,
            requires_action_seconds=self.requires_action_seconds,
        )
