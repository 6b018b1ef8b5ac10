"""Rows brought to what Stripe shows of them, by whoever learns of it without a message: one place decides.

    an event told ─► told ───────────┐
    a row's turn  ─► bring_together ─┴─► compare ─┬─ the bank decided ─► cancel what failed ─► decide
                                                  ├─ nobody holds it  ─► look ─► settle
                                                  └─ a contradiction  ─► alarm

What is found is decided by `compare` in protocol.py, and settled by the same rules as a delivery. Nothing is ever
charged here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger

from onecharge.payments.leases import LeaseLost
from onecharge.payments.ledger import Ledger
from onecharge.payments.looking import look
from onecharge.payments.protocol import OUTCOMES, ChargeRow, Compared, FoundIntent, Reply, Settle, compare, reply_for
from onecharge.payments.stripe_gateway import StripeGateway, Told
from onecharge.states import PaymentState


@dataclass(frozen=True)
class Settler:
    """Settles rows through a ledger and Stripe; `clock` gives the time in epoch seconds.

    Every method may raise what stops it halfway, and bears being called again then:
        LookInconclusive: Stripe showed too much to prove that a charge is absent.
        stripe.StripeError: Stripe gave no answer.
        BotoCoreError, ClientError: DynamoDB gave none.
    """

    ledger: Ledger
    gateway: StripeGateway
    lease_seconds: int
    """For which a row is taken over: longer than the function that does it may run."""
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def told(self, told: Told) -> None:
        """Bring the row of a PaymentIntent that an event told of to what Stripe shows by now.

        Late, repeated and disordered events are harmless: an event is a snapshot, and so no more than a hint.
        """
        row = self.ledger.read(told.order_id, told.attempt)
        if compare(row, told.intent, self._now()) is Compared.AGREES:
            return
        # What holds is what the PaymentIntent is now.
        intent = self.gateway.retrieve(told.intent.payment_intent_id)
        if intent is not None:
            self.bring_together(row, intent, order_id=told.order_id, attempt=told.attempt)

    def bring_together(self, row: ChargeRow | None, intent: FoundIntent, *, order_id: str, attempt: int) -> None:
        """Settle the row as its PaymentIntent, or report what no rule can settle; the row may be none."""
        compared = compare(row, intent, self._now())
        match compared:
            case Compared.UNKNOWN_CHARGE:
                self.count("ChargeUnknownToLedger")
                self.count("Alarm")
                self.logger.error(compared, extra={"order_id": order_id, "attempt": attempt, **_about(intent)})
            case Compared.DIFFERS if row:
                self.report(row, "LedgerDiffersFromStripe", compared, **_about(intent))
            case Compared.ABANDONED if row:
                self.look(row)
            case Compared.PAID if row:
                self._decide(row, reply_for(row.request, intent))
            case Compared.FAILED if row:
                # Its customer's page could still confirm it: only a canceled one makes room for another attempt.
                self._decide(row, reply_for(row.request, self.gateway.cancel(intent.payment_intent_id)))

    def look(self, row: ChargeRow) -> bool:
        """What a delivery does first with a row whose worker is gone, and no more: settled, if Stripe shows it.

        Returns False if the row is left CLAIMED, since Stripe shows nothing that settles it.
        """
        ours = self.ledger.take_over(row, now=self._now(), lease_seconds=self.lease_seconds)
        if ours is None:
            return True
        decision = look(self.gateway, ours, self._now)
        state = OUTCOMES[decision.reply.answer].state if isinstance(decision, Settle) else None
        try:
            if not isinstance(decision, Settle) or state is None:
                self.ledger.hand_back(ours, look_first=False, now=self._now())
                return False
            reply = decision.reply
            self.ledger.settle(
                ours,
                state,
                payment_intent_id=reply.payment_intent_id,
                code=reply.code,
                now=self._now(),
                client_secret=reply.client_secret,
            )
        except LeaseLost:
            return True
        self._settled(ours, state, reply.payment_intent_id)
        return True

    def report(self, row: ChargeRow, metric: str, message: str, **details: str) -> None:
        """Raise an alarm about a row that no rule can settle."""
        self.count(metric)
        self.count("Alarm")
        self.logger.error(message, extra={**_of(row), "state": row.state, **details})

    def _decide(self, row: ChargeRow, reply: Reply) -> None:
        """The customer's bank has said yes or no."""
        state = OUTCOMES[reply.answer].state
        if state and self.ledger.decide(row, state, code=reply.code, now=self._now()):
            self._settled(row, state, reply.payment_intent_id)

    def _settled(self, row: ChargeRow, state: PaymentState, payment_intent_id: str | None) -> None:
        self.count(f"Reconciled.{state}")
        if state is PaymentState.NEEDS_REVIEW:
            self.count("Alarm")
        self.logger.info(
            "settled as Stripe shows it", extra={**_of(row), "state": state, "payment_intent_id": payment_intent_id}
        )

    def _now(self) -> int:
        return int(self.clock())


def _of(row: ChargeRow) -> dict[str, object]:
    return {
        "order_id": row.request.order_id,
        "attempt": row.request.attempt,
        "correlation_id": row.correlation_id,
    }


def _about(intent: FoundIntent) -> dict[str, str]:
    return {"payment_intent_id": intent.payment_intent_id, "status_at_stripe": intent.status}
