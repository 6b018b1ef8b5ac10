"""What the payment service's functions share for as long as their execution environment lives."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onecharge.payments.charge_rows import PaymentStore
from onecharge.payments.instruments import Instruments
from onecharge.payments.placed_again import LookUpPlacedBefore, PlacedAgain
from onecharge.payments.refund_rows import RefundStore
from onecharge.payments.stripe_client import StripeAccount
from onecharge.payments.stripe_gateway import WINDOW_PARTS, StripeGateway
from onecharge.payments.stripe_rate import StripeRate
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import dynamodb_client
from onecharge.runtime.checkpoints import CheckpointStore
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import Threads
from onecharge.runtime.secrets import SecretUnavailable

if TYPE_CHECKING:
    import stripe


class PaymentService:
    """The service's tables, the Stripe account, clock, logger and metrics.

    Reads what template.yaml calls PaymentVariables.
    """

    def __init__(self, environment: Mapping[str, str], *, bounds: TimeBounds, instruments: Instruments) -> None:
        self.bounds = bounds
        self.instruments = instruments
        self.dynamodb = dynamodb_client()
        self.payments = PaymentStore(self.dynamodb, environment["PAYMENTS_TABLE"])
        self.refunds = RefundStore(self.dynamodb, environment["REFUNDS_TABLE"])
        self.stripe = StripeAccount(environment, bounds=bounds, count=instruments.count)
        self._requires_action_seconds = int(environment["REQUIRES_ACTION_SECONDS"])
        self._terms_version = int(environment["TERMS_VERSION"])
        self._rate = StripeRate.of(environment)
        # All lookups share the threads, as they share Stripe's limit.
        self._lookups = Threads(WINDOW_PARTS)
        state = CheckpointStore(self.dynamodb, environment["PAYMENTS_STATE_TABLE"], PlacedAgain)
        self._look_up_placed_before = LookUpPlacedBefore(state)

    def tools(self) -> Tools:
        """What one delivery, event or row is worked on with, until its deadline: with the Stripe key as it is now.

        Raises SecretUnavailable: the key cannot be read: an outage, counted as an alarm.
        """
        return Tools(
            payments=self.payments,
            refunds=self.refunds,
            stripe=StripeGateway(self._client(), parallel=self._lookups, terms_version=self._terms_version),
            instruments=self.instruments,
            rate=self._rate,
            lease_seconds=self.bounds.lease_seconds,
            deadline=self.bounds.deadline(self.instruments.clock()),
            look_up_placed_before=self._look_up_placed_before,
            requires_action_seconds=self._requires_action_seconds,
        )

    def _client(self) -> "stripe.StripeClient":
        try:
            return self.stripe.client()
        except SecretUnavailable:
            self.instruments.count(Alarm(Cause.STRIPE_KEY_UNREADABLE))
            raise
