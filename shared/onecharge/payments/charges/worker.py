"""A claimed payment, worked on until it is final or has to wait: the one place that sends money-moving requests.

    create ──► write the id ──► confirm ──► finalize          a fresh order: nothing else
       ├── a replay ──► retrieve it: what it is, decides
       └── 22 hours old ──► look up everything else, cancel what is open ──► write the id, …

Whoever claims a row (a delivery, a cancellation, the reconciler that finishes one) hands it to this worker; its
decisions are in protocol.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

import stripe
from aws_lambda_powertools import Logger

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.gateway import LookupInconclusive, StripeGateway, StripeResponse
from onecharge.payments.charges.protocol import (
    Cancel,
    CancelFound,
    CancelReason,
    Confirm,
    Confirmed,
    Create,
    Finalize,
    FoundIntent,
    Payment,
    Wait,
    decide,
    decide_after_lookup,
)
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.leases import LeaseLost
from onecharge.payments.stripe_responses import RULES, Failure, NextAction, ResponseKind, classify
from onecharge.payments.time_bounds import REFUSED_SECONDS

GENERATIONS_MAX = 3
"""How many PaymentIntents one invocation creates at the most; with more to do, the row waits for the next delivery."""


@dataclass(frozen=True)
class Unfinished:
    """The row is released, and waits for another delivery."""

    why: str


class _Release(Exception):
    """Nothing more can be done now: release the row, and say why."""

    def __init__(self, why: str, *, alarm: bool = False, kept: Mapping[str, str | int] | None = None) -> None:
        super().__init__(why)
        self.why, self.alarm, self.kept = why, alarm, kept or {}


@dataclass(frozen=True)
class PaymentWorker:
    """Works through a store and Stripe; `clock` gives the time in epoch seconds."""

    store: PaymentStore
    gateway: StripeGateway
    clock: Callable[[], float]
    logger: Logger
    count: Callable[[str], None]

    def work(self, payment: Payment, *, deadline: float) -> Payment | Unfinished:
        """Bring a claimed payment to its end, or as far as it goes.

        Args:
            deadline: epoch seconds, after which no further request to Stripe is begun.

        Returns:
            The row as it was finalized, or why it is not.
        """
        job = _Job(self, payment, deadline)
        try:
            final = job.run()
            finalized = self.store.finalize(job.payment, final, now=self.now())
        except _Release as release:
            return self._released(job, release)
        except LeaseLost:
            # The present owner sends the same requests under the same keys, and finalizes what Stripe answers.
            self.count("LeaseLost")
            self._log(job.payment, "lease lost: nothing was written")
            return Unfinished("lease lost")
        self._report(finalized, final)
        return finalized

    def _released(self, job: "_Job", release: _Release) -> Unfinished:
        # The reconciler does not visit a row that messages claim again and again: here its age is seen.
        is_overdue = job.payment.is_overdue(self.now())
        if release.alarm or is_overdue:
            self.count("Alarm")
        if is_overdue:
            self.count("PaymentOverdue")
        self.count("Payment.UNKNOWN")
        self._log(job.payment, "payment not finished", alarm=release.alarm or is_overdue, why=release.why)
        try:
            self.store.release_lease(job.payment, **release.kept)
        except LeaseLost:
            self.count("LeaseLost")
        return Unfinished(release.why)

    def _report(self, payment: Payment, final: Finalize) -> None:
        needs_review = final.state is PaymentState.NEEDS_REVIEW
        self.count(f"Payment.{final.state}")
        if needs_review:
            self.count("Alarm")
        self._log(
            payment,
            "payment finalized",
            alarm=needs_review,
            state=final.state,
            code=final.code,
            stripe_request_id=final.stripe_request_id,
        )

    def alarm(self, payment: Payment, failure: Failure) -> None:
        """Report a response that does not stop the work, and that a person has to see."""
        self.count("Alarm")
        self._log(payment, failure.kind, alarm=True, stripe_request_id=failure.request_id)

    def now(self) -> int:
        return int(self.clock())

    def _log(self, payment: Payment, message: str, *, alarm: bool = False, **details: object) -> None:
        write = self.logger.error if alarm else self.logger.info
        write(
            message,
            extra={
                "order_id": payment.request.order_id,
                "attempt": payment.attempt,
                "correlation_id": payment.correlation_id,
                "payment_intent_id": payment.payment_intent_id,
                **{name: value for name, value in details.items() if value is not None},
            },
        )


class _Job:
    """One invocation's work on one row. `payment` is the row as it was last written."""

    def __init__(self, worker: PaymentWorker, payment: Payment, deadline: float) -> None:
        self.payment = payment
        self._worker = worker
        self._gateway = worker.gateway
        self._deadline = deadline
        self._created = 0
        self._spent_key = False
        """A create's key was used for other parameters: there may be a PaymentIntent that no key leads to."""

    def run(self) -> Finalize:
        """Raises _Release, LeaseLost."""
        if self.payment.payment_intent_id is None:
            return self._ensure(self.payment.generation)
        return self._decided(self._retrieved(self.payment.payment_intent_id))

    # ------------------------------------------------------------ ensure a PaymentIntent

    def _ensure(self, generation: int) -> Finalize:
        """Create the generation's PaymentIntent, and write its id down before it is confirmed."""
        self._created += 1
        if self._created > GENERATIONS_MAX:
            raise _Release("too many generations at once", alarm=True)
        self._check_time()
        response = self._gateway.create(self.payment.request, generation)
        if response.failure or response.intent is None:
            return self._not_created(response, generation)
        # A replay proves which PaymentIntent it is; what it is by now is for Stripe to say.
        own = self._retrieved(response.intent.payment_intent_id) if response.is_replay else response.intent
        final = self._look_up(own) if own.is_open and self._must_look_up() else None
        if final is not None:
            return final
        self.payment = self._worker.store.write_payment_intent(self.payment, own.payment_intent_id, generation)
        return self._decided(own)

    def _not_created(self, response: StripeResponse, generation: int) -> Finalize:
        failure = _failure_of(response)
        if failure.kind is ResponseKind.STORED_FAILURE and self._spent_key:
            # Not with the next delivery, which would not know of the spent key, and would not look up.
            return self._ensure(generation + 1)
        if failure.kind is ResponseKind.STORED_FAILURE:
            # This key is answered so for ever: what it may yet create is an orphan that nobody confirms.
            # The row names a canceled PaymentIntent, or none: the next one to create is of the next generation.
            raise _Release("a stored failure: the next generation follows", kept={"generation": generation + 1})
        if RULES[failure.kind].action is NextAction.LOOK_UP:
            self._worker.alarm(self.payment, failure)
            self._spent_key = True
            return self._ensure(generation + 1)
        if RULES[failure.kind].action in (NextAction.DECLINE, NextAction.REFUSE):
            return self._refused_for_good(failure)
        return self._failed(failure)

    def _refused_for_good(self, failure: Failure) -> Finalize:
        """Nothing can be created. What was created before, under a key that is forgotten by now, would be found."""
        found = self._look_up(None) if self._must_look_up() else None
        if found is not None:
            return found
        is_permanent = RULES[failure.kind].action is NextAction.DECLINE
        # There is nothing that could be charged, and so nothing to leave a trace; unless we mend what is refused.
        return (
            Finalize(PaymentState.CANCELED)
            if self.payment.cancel_requested_at and is_permanent
            else self._failed(failure)
        )

    def _must_look_up(self) -> bool:
        """Whether there may be a PaymentIntent of the order that its keys do not lead to."""
        return self._spent_key or self.payment.request.is_old(self._worker.now())

    def _look_up(self, own: FoundIntent | None) -> Finalize | None:
        """Everything else of the order at Stripe: what is open is canceled, and what it is then decides."""
        self._check_time()
        try:
            found = self._gateway.find_payment_intents(self.payment.request, now=self._worker.now())
        except (LookupInconclusive, stripe.StripeError) as error:
            raise _Release("lookup inconclusive", alarm=_needs_a_person(error)) from error
        others = {intent.payment_intent_id: intent for intent in found}
        if own is not None:
            others.pop(own.payment_intent_id, None)
        decision = decide_after_lookup(self.payment, own, list(others.values()))
        if isinstance(decision, CancelFound):
            for each in decision.payment_intent_ids:
                others[each] = self._canceled(each, CancelReason.ABANDONED)
            decision = decide_after_lookup(self.payment, own, list(others.values()))
        match decision:
            case Wait():
                raise _Release("Stripe is processing it")
            case CancelFound():
                raise _Release("what was found could not be canceled", alarm=True)
            case _:
                return decision

    # ------------------------------------------------------------ what it is, decides

    def _decided(self, intent: FoundIntent, confirmed: Confirmed = Confirmed.NO) -> Finalize:
        decision = decide(self.payment, intent, confirmed=confirmed)
        match decision:
            case Finalize():
                return decision
            case Confirm():
                return self._confirm()
            case Cancel(reason):
                return self._decided(self._canceled(intent.payment_intent_id, reason), confirmed)
            case Create(generation):
                return self._ensure(generation)
            case Wait():
                raise _Release("Stripe is processing it")
            case _:
                assert_never(decision)

    def _confirm(self) -> Finalize:
        self._check_time()
        response = self._gateway.confirm(self.payment)
        intent, failure = response.intent, response.failure
        action = RULES[failure.kind].action if failure else NextAction.RETRIEVE
        if failure and action is NextAction.LOOK_UP:
            # The key was sent with another payment method, so what the PaymentIntent shows is this attempt's.
            self._worker.alarm(self.payment, failure)
        elif failure and action is NextAction.DECLINE:
            # A payment method may be used up because this very PaymentIntent succeeded with it.
            intent = self._retrieved(str(self.payment.payment_intent_id))
            return self._failed(failure) if intent.is_open else self._decided(intent)
        elif failure and action is not NextAction.RETRIEVE:
            return self._failed(failure)
        if intent is None or response.is_replay:
            intent = self._retrieved(str(self.payment.payment_intent_id))
        # Also inside an error: a decline whose PaymentIntent says otherwise is none.
        return self._decided(intent, _confirmed_by(failure))

    def _retrieved(self, payment_intent_id: str) -> FoundIntent:
        self._check_time()
        return self._intent_of(self._gateway.retrieve(payment_intent_id))

    def _canceled(self, payment_intent_id: str, reason: CancelReason) -> FoundIntent:
        self._check_time()
        intent = self._intent_of(self._gateway.cancel(payment_intent_id, reason))
        if intent.is_open:
            raise _Release("a PaymentIntent could not be canceled", alarm=True)
        return intent

    # ------------------------------------------------------------ what is no PaymentIntent

    def _intent_of(self, response: StripeResponse) -> FoundIntent:
        if response.intent is None or response.failure:
            failure = _failure_of(response)
            raise _Release(failure.kind, alarm=RULES[failure.kind].alarm, kept=_details(failure))
        return response.intent

    def _failed(self, failure: Failure) -> Finalize:
        rule = RULES[failure.kind]
        match rule.action:
            case NextAction.DECLINE:
                return _final_for(PaymentState.DECLINED, failure)
            case NextAction.REFUSE:
                return self._refused(failure)
            case _:
                raise _Release(failure.kind, alarm=rule.alarm, kept=_details(failure))

    def _refused(self, failure: Failure) -> Finalize:
        now = self._worker.now()
        since = self.payment.refused_at
        if since is not None and now - since >= REFUSED_SECONDS:
            return _final_for(PaymentState.NEEDS_REVIEW, failure)
        raise _Release(failure.kind, alarm=True, kept={"refused_at": since or now, **_details(failure)})

    def _check_time(self) -> None:
        if self._worker.clock() >= self._deadline:
            raise _Release("too little time left")


def _confirmed_by(failure: Failure | None) -> Confirmed:
    """What the answer to a confirm says of it; a refusal or a stored failure says nothing of the payment method."""
    kind = failure.kind if failure else None
    spent = (ResponseKind.STORED_FAILURE, ResponseKind.UNEXPECTED_STATE)
    return Confirmed.SPENT if kind in spent else Confirmed.ANSWERED


def _failure_of(response: StripeResponse) -> Failure:
    return response.failure or Failure(ResponseKind.NO_ANSWER)


def _final_for(state: PaymentState, failure: Failure) -> Finalize:
    code = failure.code or "invalid_request"
    return Finalize(state, code=code, stripe_message=failure.message, stripe_request_id=failure.request_id)


def _details(failure: Failure) -> dict[str, str]:
    kept = {"stripe_message": failure.message, "stripe_request_id": failure.request_id}
    return {name: value for name, value in kept.items() if value is not None}


def _needs_a_person(error: Exception) -> bool:
    """Whether it does not pass by itself."""
    return not isinstance(error, stripe.StripeError) or RULES[classify(error).kind].alarm
