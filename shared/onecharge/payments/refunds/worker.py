"""A claimed refund, worked on until it is final or has to wait: the one place that sends requests to refund.

look up ──► none: send ──► finalize             a fresh refund: two requests to Stripe
   │                └── no answer: release, and look up again
   └── found: finalize as what it is
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

import stripe
from aws_lambda_powertools import Logger

from onecharge.payments.charges.gateway import LookupInconclusive
from onecharge.payments.charges.worker import Unfinished
from onecharge.payments.leases import LeaseLost
from onecharge.payments.refunds.gateway import RefundResponse, StripeRefunds
from onecharge.payments.refunds.protocol import (
    REFUND_RULES,
    FinalizeRefund,
    FoundRefund,
    Refund,
    RefundAction,
    Send,
    WaitAndLookUp,
    decide_refund,
    kind_of,
)
from onecharge.payments.refunds.store import RefundStore
from onecharge.payments.stripe_responses import Failure, ResponseKind, classify


class _Release(Exception):
    """Nothing more can be done now: release the row, and say why."""

    def __init__(self, why: str, *, alarm: bool = False, kept: Mapping[str, str | int] | None = None) -> None:
        super().__init__(why)
        self.why, self.alarm, self.kept = why, alarm, kept or {}


@dataclass(frozen=True)
class RefundWorker:
    """Works through a store and Stripe; `clock` gives the time in epoch seconds."""

    store: RefundStore
    gateway: StripeRefunds
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def work(self, refund: Refund, *, deadline: float) -> Refund | Unfinished:
        """Bring a claimed refund to its end, or as far as it goes.

        Args:
            deadline: epoch seconds, after which no further request to Stripe is begun.

        Returns:
            The row as it was finalized, or why it is not.
        """
        try:
            final = self._run(refund, deadline)
            finalized = self.store.finalize(refund, final, now=self._now())
        except _Release as release:
            return self._released(refund, release)
        except LeaseLost:
            # The present owner looks up first, sends under the same key, and finalizes what Stripe answers.
            self.count("LeaseLost")
            self._log(refund, "lease lost: nothing was written")
            return Unfinished("lease lost")
        self._report(finalized, final)
        return finalized

    def _run(self, refund: Refund, deadline: float) -> FinalizeRefund:
        """Raises _Release."""
        decision = decide_refund(refund, self._look_up(refund, deadline), now=self._now())
        if isinstance(decision, Send):
            self._check_time(deadline)
            decision = self._decide_after(refund, self.gateway.create(refund.request), deadline)
        match decision:
            case FinalizeRefund():
                return decision
            case WaitAndLookUp(why, alarm, kept):
                raise _Release(why, alarm=alarm, kept=kept)
            case Send():
                raise _Release("Stripe shows none of what it says it has made", alarm=True)
            case _:
                assert_never(decision)

    def _decide_after(
        self, refund: Refund, response: RefundResponse, deadline: float
    ) -> FinalizeRefund | Send | WaitAndLookUp:
        now = self._now()
        if response.refund is not None and not response.is_replay:
            return decide_refund(refund, [response.refund], now=now)
        if response.refund is not None:
            # A replay proves that it was made; what it is by now is for Stripe to say.
            return decide_refund(refund, self._look_up(refund, deadline), now=now)
        failure = response.failure or Failure(ResponseKind.NO_ANSWER)
        if REFUND_RULES[kind_of(failure)].action is RefundAction.RETRY:
            return decide_refund(refund, [], now=now, failure=failure)
        return decide_refund(refund, self._look_up(refund, deadline), now=now, failure=failure)

    def _look_up(self, refund: Refund, deadline: float) -> list[FoundRefund]:
        self._check_time(deadline)
        request = refund.request
        try:
            return self.gateway.find_refunds(request.payment_intent_id, request.refund_id)
        except LookupInconclusive as error:
            raise _Release("lookup inconclusive", alarm=True) from error
        except stripe.StripeError as error:
            kind = kind_of(classify(error))
            raise _Release(f"lookup: {kind}", alarm=REFUND_RULES[kind].alarm) from error

    def _released(self, refund: Refund, release: _Release) -> Unfinished:
        if release.alarm:
            self.count("Alarm")
        self.count("Refund.UNKNOWN")
        self._log(refund, "refund not finished", alarm=release.alarm, why=release.why)
        try:
            self.store.release_lease(refund, **release.kept)
        except LeaseLost:
            self.count("LeaseLost")
        return Unfinished(release.why)

    def _report(self, refund: Refund, final: FinalizeRefund) -> None:
        self.count(f"Refund.{final.state}")
        if final.alarm:
            self.count("Alarm")
        self._log(
            refund,
            "refund finalized",
            alarm=final.alarm,
            state=final.state,
            code=final.code,
            stripe_refund_id=final.stripe_refund_id,
            stripe_request_id=final.stripe_request_id,
        )

    def _check_time(self, deadline: float) -> None:
        if self.clock() >= deadline:
            raise _Release("too little time left")

    def _now(self) -> int:
        return int(self.clock())

    def _log(self, refund: Refund, message: str, *, alarm: bool = False, **details: object) -> None:
        write = self.logger.error if alarm else self.logger.info
        write(
            message,
            extra={
                "order_id": refund.request.order_id,
                "refund_id": refund.request.refund_id,
                "attempt": refund.request.attempt,
                "correlation_id": refund.correlation_id,
                "payment_intent_id": refund.request.payment_intent_id,
                **{name: value for name, value in details.items() if value is not None},
            },
        )
