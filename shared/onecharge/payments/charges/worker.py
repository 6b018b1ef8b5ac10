"""The work on a claimed payment: the only place that sends requests that move money.

    create ──► write the id ──► confirm ──► finalize          a fresh order: nothing else
       ├── a replay ──► retrieve the PaymentIntent: its status decides
       └── 22 hours old ──► look up all others, cancel those that are open ──► write the id, …

What is decided is in protocol.py; how a job's end is written and reported, in payments/worker.py.
"""

from dataclasses import dataclass
from typing import assert_never

import stripe

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.gateway import StripeGateway, StripeResponse
from onecharge.payments.charges.protocol import (
    Cancel,
    CancelFound,
    CancelReason,
    Confirm,
    ConfirmResult,
    Create,
    Finalize,
    FoundIntent,
    Payment,
    Wait,
    decide,
    decide_after_lookup,
)
from onecharge.payments.charges.rules import RULES, NextAction
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.money_metrics import money_charged
from onecharge.payments.stripe_responses import Failure, LookupInconclusive, ResponseKind, classify
from onecharge.payments.time_bounds import REFUSED_SECONDS
from onecharge.payments.worker import Job, Release, Worker
from onecharge.runtime.alarms import Cause

GENERATIONS_MAX = 3
"""How many PaymentIntents one invocation creates at most; with more to do, the row waits for the next delivery."""


@dataclass(frozen=True)
class PaymentWorker(Worker[Payment, Finalize]):
    """Works on payments through a store and Stripe."""

    store: PaymentStore
    gateway: StripeGateway
    look_up_placed_before: int = 0
    """Epoch seconds. An order that was placed earlier is looked up at any age: after a restore it may have been placed
    anew, so that its age is forgotten."""

    subject = "Payment"

    def job(self, row: Payment, *, deadline: float) -> "ChargeJob":
        return ChargeJob(self, row, deadline)

    def _report(self, row: Payment, final: Finalize) -> None:
        super()._report(row, final)
        if final.state is PaymentState.SUCCEEDED:
            self.instruments.count(money_charged(row.request.amount_minor, row.request.currency))

    def is_overdue(self, row: Payment) -> bool:
        """The reconciler does not visit a row that messages keep claiming: its age is checked here."""
        return row.is_overdue(self.instruments.now())


class ChargeJob(Job[Payment, Finalize]):
    """One invocation's work on one payment."""

    def __init__(self, worker: PaymentWorker, row: Payment, deadline: float) -> None:
        super().__init__(row, worker.instruments, deadline)
        self._store = worker.store
        self._gateway = worker.gateway
        self._look_up_placed_before = worker.look_up_placed_before
        self._turn = worker.turn
        self._created = 0
        self._key_has_other_parameters = False
        """The key of a create was used with other parameters: there may be a PaymentIntent that no key leads to."""

    def run(self) -> Finalize:
        if self.row.payment_intent_id is None:
            return self._ensure(self.row.generation)
        return self._act_on(self._retrieve(self.row.payment_intent_id))

    # ------------------------------------------------------------ ensure a PaymentIntent

    def _ensure(self, generation: int) -> Finalize:
        """Create the generation's PaymentIntent, and write its id to the row before it is confirmed."""
        self._created += 1
        if self._created > GENERATIONS_MAX:
            raise Release("too many generations at once", alarm=Cause.STRIPE_INCONCLUSIVE)
        self._check_time()
        response = self._gateway.create(self.row.request, generation)
        if response.failure or response.intent is None:
            return self._not_created(response, generation)
        # A replay proves the PaymentIntent's id, not its current status.
        own = self._retrieve(response.intent.payment_intent_id) if response.is_replay else response.intent
        final = self._look_up(own) if own.is_open and self._must_look_up() else None
        if final is not None:
            return final
        self.row = self._store.write_payment_intent(self.row, own.payment_intent_id, generation)
        return self._act_on(own)

    def _not_created(self, response: StripeResponse, generation: int) -> Finalize:
        failure = _failure_of(response)
        if failure.kind is ResponseKind.STORED_FAILURE and self._key_has_other_parameters:
            # Only this invocation knows that a key before has other parameters, and so has to look up: go on now.
            return self._ensure(generation + 1)
        if failure.kind is ResponseKind.STORED_FAILURE:
            # Otherwise store the next number, and release. This key replays the failure: what Stripe may still create
            # under it is an orphan that nobody confirms. The row names a canceled PaymentIntent, or none.
            raise Release("stored failure: the next generation follows", kept={"generation": generation + 1})
        if RULES[failure.kind].action is NextAction.LOOK_UP:
            self._alarm(failure)
            self._key_has_other_parameters = True
            return self._ensure(generation + 1)
        if RULES[failure.kind].action in (NextAction.DECLINE, NextAction.REFUSE):
            return self._create_refused(failure)
        return self._failed(failure)

    def _create_refused(self, failure: Failure) -> Finalize:
        """Nothing can be created. A PaymentIntent whose key was removed since would be found."""
        found = self._look_up(None) if self._must_look_up() else None
        if found is not None:
            return found
        is_permanent = RULES[failure.kind].action is NextAction.DECLINE
        # Stripe refuses permanently: nothing exists to charge, so CANCELED needs no PaymentIntent as its trace. If only
        # our request is at fault, a deploy may let the create succeed: retry.
        return (
            Finalize(PaymentState.CANCELED) if self.row.cancel_requested_at and is_permanent else self._failed(failure)
        )

    def _must_look_up(self) -> bool:
        """Whether there may be a PaymentIntent of the order that its keys do not lead to."""
        request = self.row.request
        may_be_placed_anew = request.placed_at < self._look_up_placed_before
        return self._key_has_other_parameters or may_be_placed_anew or request.is_old(self._instruments.now())

    def _look_up(self, own: FoundIntent | None) -> Finalize | None:
        """Look up the order's other PaymentIntents, and cancel those that are open. None: `own` can be used."""
        self._check_time()
        try:
            found = self._gateway.find_payment_intents(
                self.row.request, now=self._instruments.now(), has_time=self._has_time
            )
        except (LookupInconclusive, stripe.StripeError) as error:
            raise Release("lookup inconclusive", alarm=_cause_of(error)) from error
        others = {intent.payment_intent_id: intent for intent in found}
        if own is not None:
            others.pop(own.payment_intent_id, None)
        decision = decide_after_lookup(self.row, own, list(others.values()))
        if isinstance(decision, CancelFound):
            for each in decision.payment_intent_ids:
                others[each] = self._cancel(each, CancelReason.ABANDONED)
            decision = decide_after_lookup(self.row, own, list(others.values()))
        match decision:
            case Wait():
                raise Release("Stripe is processing it")
            case CancelFound():
                raise Release("a PaymentIntent that was found could not be canceled", alarm=Cause.STRIPE_INCONCLUSIVE)
            case _:
                return decision

    # ------------------------------------------------------------ its status decides

    def _act_on(self, intent: FoundIntent, confirm_result: ConfirmResult = ConfirmResult.NONE_YET) -> Finalize:
        decision = decide(self.row, intent, confirm_result=confirm_result)
        match decision:
            case Finalize():
                return decision
            case Confirm():
                return self._confirm()
            case Cancel(reason):
                return self._act_on(self._cancel(intent.payment_intent_id, reason), confirm_result)
            case Create(generation):
                return self._ensure(generation)
            case Wait():
                raise Release("Stripe is processing it")
            case _:
                assert_never(decision)

    def _confirm(self) -> Finalize:
        self._turn.confirm()
        self._check_time()  # After the wait: nothing is confirmed past the deadline.
        response = self._gateway.confirm(self.row)
        intent, failure = response.intent, response.failure
        action = RULES[failure.kind].action if failure else NextAction.RETRIEVE
        if failure and action is NextAction.LOOK_UP:
            # The key is this attempt's, so its confirm was already sent, with another payment method: read the result.
            self._alarm(failure)
        elif failure and action is NextAction.DECLINE:
            # A payment method may be consumed because this PaymentIntent succeeded with it.
            intent = self._retrieve(str(self.row.payment_intent_id))
            return self._failed(failure) if intent.is_open else self._act_on(intent)
        elif failure and action is not NextAction.RETRIEVE:
            return self._failed(failure)
        if intent is None or response.is_replay:
            intent = self._retrieve(str(self.row.payment_intent_id))
        # Also for an error: the PaymentIntent decides whether it was a decline.
        return self._act_on(intent, _confirm_result(failure))

    def _retrieve(self, payment_intent_id: str) -> FoundIntent:
        self._check_time()
        return self._intent_of(self._gateway.retrieve(payment_intent_id))

    def _cancel(self, payment_intent_id: str, reason: CancelReason) -> FoundIntent:
        self._check_time()
        intent = self._intent_of(self._gateway.cancel(payment_intent_id, reason))
        if intent.is_open:
            raise Release("a PaymentIntent could not be canceled", alarm=Cause.STRIPE_INCONCLUSIVE)
        return intent

    # ------------------------------------------------------------ a response without a PaymentIntent

    def _intent_of(self, response: StripeResponse) -> FoundIntent:
        if response.intent is None or response.failure:
            failure = _failure_of(response)
            raise Release(failure.kind, alarm=RULES[failure.kind].alarm, kept=failure.details)
        return response.intent

    def _failed(self, failure: Failure) -> Finalize:
        rule = RULES[failure.kind]
        match rule.action:
            case NextAction.DECLINE:
                return _final_for(PaymentState.DECLINED, failure)
            case NextAction.REFUSE:
                return self._refused(failure)
            case _:
                raise Release(failure.kind, alarm=rule.alarm, kept=failure.details)

    def _refused(self, failure: Failure) -> Finalize:
        now = self._instruments.now()
        since = self.row.refused_at
        if since is not None and now - since >= REFUSED_SECONDS:
            return _final_for(PaymentState.NEEDS_REVIEW, failure)
        raise Release(
            failure.kind, alarm=RULES[failure.kind].alarm, kept={"refused_at": since or now, **failure.details}
        )

    def _alarm(self, failure: Failure) -> None:
        """Report a response that does not stop the work, but that a person has to see."""
        cause = RULES[failure.kind].alarm
        self._instruments.log(failure.kind, alarm=cause, **self.row.log_fields, stripe_request_id=failure.request_id)


def _confirm_result(failure: Failure | None) -> ConfirmResult:
    """What the response to a confirm proves about this attempt."""
    kind = failure.kind if failure else None
    # Stripe stores UNEXPECTED_STATE too: somebody else confirmed or canceled first, this confirm was not executed, and
    # its one key replays that from now on, even if the PaymentIntent is open again.
    unusable = (ResponseKind.STORED_FAILURE, ResponseKind.UNEXPECTED_STATE)
    return ConfirmResult.KEY_UNUSABLE if kind in unusable else ConfirmResult.ANSWERED


def _failure_of(response: StripeResponse) -> Failure:
    return response.failure or Failure(ResponseKind.NO_ANSWER)


def _final_for(state: PaymentState, failure: Failure) -> Finalize:
    code = failure.code or "invalid_request"
    return Finalize(state, code=code, stripe_message=failure.message, stripe_request_id=failure.request_id)


def _cause_of(error: Exception) -> Cause | None:
    """Why a lookup that failed does not resolve by itself, if so."""
    return RULES[classify(error).kind].alarm if isinstance(error, stripe.StripeError) else Cause.STRIPE_INCONCLUSIVE
