"""The work on a claimed refund: the only place that sends requests to refund.

look up ──► none: send ──► finalize             a fresh refund: two requests to Stripe
   │                └── no response: release the lease, and look up again
   └── found: finalize as what it is

What is decided is in protocol.py; how a job's end is written and reported, in payments/worker.py.
"""

from dataclasses import dataclass
from typing import assert_never

import stripe

from onecharge.contract.refunds import RefundState
from onecharge.payments.money_metrics import money_refunded
from onecharge.payments.refunds.gateway import RefundResponse, StripeRefunds
from onecharge.payments.refunds.protocol import Finalize, FoundRefund, Refund, Send, Wait, decide
from onecharge.payments.refunds.rules import RULES, NextAction, kind_of
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_responses import Failure, LookupInconclusive, ResponseKind, classify
from onecharge.payments.worker import Job, Release, Worker
from onecharge.runtime.alarms import Cause


@dataclass(frozen=True)
class RefundWorker(Worker[Refund, Finalize]):
    """Works on refunds through a store and Stripe."""

    store: RefundStore
    gateway: StripeRefunds

    subject = "Refund"

    def _report(self, row: Refund, final: Finalize) -> None:
        super()._report(row, final)
        if final.state is RefundState.SUCCEEDED:
            self.instruments.count(money_refunded(row.request.amount_minor, row.request.currency))

    def job(self, row: Refund, *, deadline: float) -> "RefundJob":
        return RefundJob(self, row, deadline)

    def is_overdue(self, row: Refund) -> bool:
        """Also of a refund that nobody has requested, of a canceled order: republish does not know it."""
        return row.is_overdue(self.instruments.now())


class RefundJob(Job[Refund, Finalize]):
    """One invocation's work on one refund."""

    def __init__(self, worker: RefundWorker, row: Refund, deadline: float) -> None:
        super().__init__(row, worker.instruments, deadline)
        self._gateway = worker.gateway

    def run(self) -> Finalize:
        decision = decide(self.row, self._look_up(), now=self._instruments.now())
        if isinstance(decision, Send):
            self._check_time()
            decision = self._decide_after(self._gateway.create(self.row.request))
        match decision:
            case Finalize():
                return decision
            case Wait(why, alarm, kept):
                raise Release(why, alarm=alarm, kept=kept)
            case Send():
                raise Release(
                    "Stripe does not show the refund that it says it has created", alarm=Cause.STRIPE_INCONCLUSIVE
                )
            case _:
                assert_never(decision)

    def _decide_after(self, response: RefundResponse) -> Finalize | Send | Wait:
        now = self._instruments.now()
        if response.refund is not None and not response.is_replay:
            return decide(self.row, [response.refund], now=now)
        if response.refund is not None:
            # A replay proves that the refund was created, not its current status.
            return decide(self.row, self._look_up(), now=now)
        failure = response.failure or Failure(ResponseKind.NO_ANSWER)
        if RULES[kind_of(failure)].action is NextAction.RETRY:
            return decide(self.row, [], now=now, failure=failure)
        return decide(self.row, self._look_up(), now=now, failure=failure)

    def _look_up(self) -> list[FoundRefund]:
        self._check_time()
        request = self.row.request
        try:
            return self._gateway.find_refunds(request.payment_intent_id, request.refund_id)
        except LookupInconclusive as error:
            raise Release("lookup inconclusive", alarm=Cause.STRIPE_INCONCLUSIVE) from error
        except stripe.StripeError as error:
            kind = kind_of(classify(error))
            raise Release(f"lookup: {kind}", alarm=RULES[kind].alarm) from error
