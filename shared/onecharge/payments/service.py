"""The payment service's parts, put together in one place for all its functions.

PaymentService   what outlives an invocation: the Payments table, the Stripe account, clock, logger and metrics
   └─ charges()  what works with the Stripe key as it is now: gateway, worker, cancellation
reconciliation.py puts its parts together on top of it.
refunds/service.py does the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.gateway import WINDOW_PARTS, StripeGateway
from onecharge.payments.charges.protocol import Payment
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.instruments import Instruments
from onecharge.payments.stripe_client import StripeAccount
from onecharge.payments.time_bounds import TimeBounds
from onecharge.payments.worker import AT_ONCE, Turn
from onecharge.runtime.alarms import Cause
from onecharge.runtime.aws import aws_client, client_config
from onecharge.runtime.metrics import Alarm
from onecharge.runtime.parallel import Threads
from onecharge.runtime.secrets import SecretUnavailable


@dataclass(frozen=True)
class Charges:
    """The parts that charge, over one store and one gateway."""

    store: PaymentStore
    gateway: StripeGateway
    bounds: TimeBounds
    instruments: Instruments
    look_up_placed_before: int = 0
    """As PaymentWorker has it."""
    turn: Turn = AT_ONCE
    seen: Mapping[str, Payment] = field(default_factory=dict)
    """Rows by order id, as they were read after this delivery had begun."""

    @property
    def worker(self) -> PaymentWorker:
        return PaymentWorker(
            store=self.store,
            gateway=self.gateway,
            instruments=self.instruments,
            look_up_placed_before=self.look_up_placed_before,
            turn=self.turn,
        )

    @property
    def cancel(self) -> CancelPayment:
        return CancelPayment(store=self.store, worker=self.worker, bounds=self.bounds, instruments=self.instruments)


class PaymentService:
    """Everything that outlives an invocation.

    Reads PAYMENTS_TABLE, STRIPE_SECRET_ARN, STRIPE_API_BASE and LOOK_UP_PLACED_BEFORE_SECONDS (since 1970).
    """

    def __init__(self, environment: Mapping[str, str], *, bounds: TimeBounds, instruments: Instruments) -> None:
        self.bounds = bounds
        self.instruments = instruments
        config = client_config()
        self.dynamodb = aws_client("dynamodb", config=config)
        self.store = PaymentStore(self.dynamodb, environment["PAYMENTS_TABLE"])
        # All lookups of a worker share the threads, as they share Stripe's limit.
        self._lookups = Threads(WINDOW_PARTS)
        self.stripe = StripeAccount(environment, config=config, bounds=bounds, count=instruments.count)
        look_up = "LOOK_UP_PLACED_BEFORE_SECONDS"  # A function that does not charge has none.
        self._look_up_placed_before = int(environment[look_up]) if look_up in environment else 0

    def charges(self) -> Charges:
        """The parts over a client with the Stripe key as it is now.

        Raises:
            SecretUnavailable: the key cannot be read: an outage, counted as an alarm.
        """
        try:
            client = self.stripe.client()
        except SecretUnavailable:
            self.instruments.count(Alarm(Cause.STRIPE_KEY_UNREADABLE))
            raise
        gateway = StripeGateway(client, parallel=self._lookups)
        return Charges(self.store, gateway, self.bounds, self.instruments, self._look_up_placed_before)
