"""The charge, on one page: from a claimed row to its final state, by the rules of docs/protocol.md.

    create ──► store the id ──► confirm ──► finalize          a fresh order: nothing else
       ├── a replay ──► retrieve the PaymentIntent: its status decides
       └── 22 hours old ──► look up all others, cancel those that are open ──► store the id, …

Only this module confirms, which is the one request that charges. charge_rules.py says what follows from what Stripe
shows, as pure functions; deliveries.py finalizes the row as `charge` says, or releases its lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import stripe

from onecharge.contract.states import PaymentState
from onecharge.payments.answers import ANSWERS, Action, cause_of_error
from onecharge.payments.charge_rules import (
    Cancel,
    CancelFound,
    CancelReason,
    Confirm,
    ConfirmResult,
    Create,
    Finalize,
    Payment,
    StripeIntent,
    Wait,
    decide,
    decide_after_lookup,
    decline_of_refused_card,
)
from onecharge.payments.rows import ReleaseLease
from onecharge.payments.stripe_gateway import StripeResponse
from onecharge.payments.stripe_responses import Failure, LookupInconclusive, ResponseKind, classify
from onecharge.payments.time_bounds import REFUSED_SECONDS
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause

STEPS_MAX = 10
"""A fresh order takes three steps, and each PaymentIntent that has to be replaced two or three more."""

_NO_CARDS = Failure(ResponseKind.ACCOUNT, message="payment_method_types has no card: is card_payments active?")


def charge(row: Payment, tools: Tools) -> Finalize:
    """Charge a claimed row once; returns what to finalize it as.

    Raises:
        ReleaseLease: nothing more can be done now. The next delivery continues from here.
        WriteRefused: another worker has claimed the row, or has stored another PaymentIntent.
    """
    confirm_result = ConfirmResult.UNKNOWN
    intent = retrieve(row.payment_intent_id, tools) if row.payment_intent_id else None
    for _ in range(STEPS_MAX):
        match decide(row, intent, confirm_result):
            case Finalize() as final:
                return final
            case Wait():
                raise ReleaseLease("Stripe is processing it")
            case Cancel(reason, payment_intent_id):
                intent = cancel(payment_intent_id, reason, tools)
            case Confirm():
                intent, confirm_result, refusal = confirm(row, tools)
                if refusal:
                    return refusal
            case Create(generation):
                created = create(row, generation, tools)
                if isinstance(created, KeySpent):
                    row, intent = created.next_row(row, generation), None
                    continue
                if tools.keys_may_be_forgotten(row):
                    found = look_up(row, created, tools)
                    if found:
                        return found
                if isinstance(created, Finalize):
                    return created
                # Stored before any money can move: every other worker finds this PaymentIntent, and confirms it only.
                row = tools.write_payment_intent(row, created.payment_intent_id, generation)
                intent, confirm_result = created, ConfirmResult.UNKNOWN
    kept = generation_to_keep(row, row.generation)
    raise ReleaseLease("too many PaymentIntents in one delivery", alarm=Cause.STRIPE_INCONCLUSIVE, kept=kept)


# ---------------------------------------------------------------- its steps


@dataclass(frozen=True)
class KeySpent:
    """The generation's key cannot create its PaymentIntent anymore: the next generation follows."""

    has_other_parameters: bool
    """The key has created a PaymentIntent with other parameters: only a lookup finds it."""

    def next_row(self, row: Payment, generation: int) -> Payment:
        """The row with the next generation, which is not stored yet."""
        misused = row.key_was_misused or self.has_other_parameters
        return replace(row, generation=generation + 1, key_was_misused=misused)


def generation_to_keep(row: Payment, generation: int) -> dict[str, int]:
    """What a release stores of the generation, so that the next delivery does not begin with keys that are spent.

    While a lookup is due, nothing: the next delivery meets the same key, and looks up again.
    """
    return {} if row.key_was_misused else {"generation": generation}


def create(row: Payment, generation: int, tools: Tools) -> StripeIntent | KeySpent | Finalize:
    """Create the generation's PaymentIntent; no money moves. Finalize: Stripe refuses to create any."""
    tools.wait_for_token(tools.rate.creates.take)
    response = tools.stripe.create(row.request, generation)
    if response.found and not response.failure:
        intent = response.found
        if response.is_replay:
            # A replay proves the PaymentIntent's id, not its current status.
            intent = retrieve(intent.payment_intent_id, tools)
        if intent.takes_cards or not intent.is_open or row.cancel_requested_at:
            return intent
        # A confirm would decline every card. When this is replayed, card payments may be active again.
        failure = replace(_NO_CARDS, kind=ResponseKind.STORED_REFUSAL) if response.is_replay else _NO_CARDS
    else:
        failure = _failure_of(response)
    match ANSWERS[failure.kind].charge:
        case Action.KEY_SPENT:
            # What Stripe may still create under this key is an orphan, which nobody confirms.
            return KeySpent(has_other_parameters=False)
        case Action.LOOK_UP:
            tools.raise_alarm(row, failure)
            return KeySpent(has_other_parameters=True)
        case Action.DECLINE if row.cancel_requested_at:
            # Nothing exists to charge: CANCELED is stored without a PaymentIntent.
            return Finalize(PaymentState.CANCELED)
        case Action.DECLINE | Action.REFUSE:
            return _end_or_release(row, failure, tools, generation_to_keep(row, generation))
    raise _release_for(failure, generation_to_keep(row, generation))


def confirm(row: Payment, tools: Tools) -> tuple[StripeIntent, ConfirmResult, Finalize | None]:
    """Confirm the row's PaymentIntent: returns it as it is then, and what to finalize it as if that was refused.

    Once it is not open any more, its status decides, and no refusal.
    """
    if _is_refused_card(row, tools):
        shown = retrieve(str(row.payment_intent_id), tools)
        return shown, ConfirmResult.UNKNOWN, decline_of_refused_card(row, shown) if shown.is_open else None
    tools.wait_for_token(tools.rate.confirms.take)
    response = tools.stripe.confirm(row)
    failure = response.failure
    refusal = None
    if failure:
        match ANSWERS[failure.kind].charge:
            case Action.RETRY:
                raise _release_for(failure)
            case Action.DECLINE | Action.REFUSE:
                # "Previously used" may mean that this very PaymentIntent succeeded with it: its status decides.
                refusal = _end_or_release(row, failure, tools)
            case Action.LOOK_UP:
                # The key belongs to this attempt: an earlier worker confirmed, with another payment method.
                tools.raise_alarm(row, failure)
            case Action.RETRIEVE | Action.KEY_SPENT:
                pass  # The PaymentIntent decides, and `_confirm_result_of` says what the response proves.
    # Also after an error: the PaymentIntent decides whether it was a decline. Why Stripe has canceled it may be seen
    # only on its latest charge, which a response to a confirm does not show.
    intent = None if response.is_replay or refusal else response.found
    if intent is None or intent.status == "canceled":
        intent = retrieve(str(row.payment_intent_id), tools)
    if failure and failure.kind is ResponseKind.DECLINED and not intent.error_code:
        # An update has cleared the error, and there was no charge: the response still says that it was declined.
        intent = replace(intent, error_code=failure.code or "card_declined")
    confirm_result = ConfirmResult.UNKNOWN if refusal else _confirm_result_of(failure)
    return intent, confirm_result, refusal if intent.is_open else None


def _confirm_result_of(failure: Failure | None) -> ConfirmResult:
    """What the response to a confirm proves about this attempt."""
    # Stripe stores UNEXPECTED_STATE too: somebody else confirmed or canceled first, this confirm was not executed, and
    # its one key replays that from now on, even if the PaymentIntent is open again.
    if failure is None:
        return ConfirmResult.KNOWN
    if failure.kind is ResponseKind.OTHER_PARAMETERS:
        return ConfirmResult.KEY_MISUSED
    is_spent = ANSWERS[failure.kind].charge is Action.KEY_SPENT or failure.kind is ResponseKind.UNEXPECTED_STATE
    return ConfirmResult.KEY_SPENT if is_spent else ConfirmResult.KNOWN


def _is_refused_card(row: Payment, tools: Tools) -> bool:
    """Whether an earlier attempt was declined with the advice not to try this card again, whatever its id is now.

    Raises ReleaseLease if Stripe does not say it: of two workers one would try the card, and the other one refuse it.
    """
    if not row.refused_cards:
        return False
    tools.require_time()
    try:
        return tools.stripe.card_of(row.payment_method) in row.refused_cards
    except stripe.StripeError as error:
        failure = classify(error)
        if failure.kind not in (ResponseKind.PAYMENT_METHOD_REFUSED, ResponseKind.NOT_FOUND):
            raise _release_for(failure) from error
        return False  # There is no such card: the response to the confirm says it to the customer.


def look_up(row: Payment, created: StripeIntent | Finalize | None, tools: Tools) -> Finalize | None:
    """Look up the order's other PaymentIntents, and cancel those that are open. None: go on with what was created."""
    own = created if isinstance(created, StripeIntent) else None
    if own and not own.is_open and not row.key_was_misused:
        return None
    tools.require_time()
    try:
        found = tools.stripe.find_payment_intents(
            row.request,
            now=tools.instruments.now(),
            is_time_known=not (row.key_was_misused or tools.may_be_placed_again(row)),
            has_time=tools.has_time,
        )
    except (LookupInconclusive, stripe.StripeError) as error:
        raise ReleaseLease("lookup inconclusive", alarm=cause_of_error(error)) from error
    found = [_with_refunds_and_disputes(each, tools) for each in found]
    own_id = own.payment_intent_id if own else None
    others = {intent.payment_intent_id: intent for intent in found if intent.payment_intent_id != own_id}
    decision = decide_after_lookup(row, own, list(others.values()))
    if isinstance(decision, CancelFound):
        for each in decision.payment_intent_ids:
            others[each] = cancel(each, CancelReason.ABANDONED, tools)
        decision = decide_after_lookup(row, own, list(others.values()))
    match decision:
        case Wait():
            raise ReleaseLease("Stripe is processing it")
        case CancelFound():
            raise ReleaseLease("a PaymentIntent that was found could not be canceled", alarm=Cause.STRIPE_INCONCLUSIVE)
    return decision


def _with_refunds_and_disputes(found: StripeIntent, tools: Tools) -> StripeIntent:
    """With refunds, disputes and suspicion, if it succeeded: the row that knew of them may be lost."""
    if found.status != "succeeded":
        return found
    try:
        return replace(found, after_charge=tools.stripe.after_charge(found, before_each=tools.require_time))
    except (LookupInconclusive, stripe.StripeError) as error:
        raise ReleaseLease("refunds and disputes not read", alarm=cause_of_error(error)) from error


def retrieve(payment_intent_id: str, tools: Tools) -> StripeIntent:
    """The PaymentIntent as it is now."""
    tools.require_time()
    return _with_refunds_and_disputes(_intent_of(tools.stripe.retrieve(payment_intent_id)), tools)


def cancel(payment_intent_id: str, reason: CancelReason, tools: Tools) -> StripeIntent:
    """Cancel the PaymentIntent; returns it as it is then, which may be `succeeded`: Stripe decides the race."""
    tools.require_time()
    intent = _intent_of(tools.stripe.cancel(payment_intent_id, reason))
    if intent.is_open:
        raise ReleaseLease("a PaymentIntent could not be canceled", alarm=Cause.STRIPE_INCONCLUSIVE)
    return intent


def _intent_of(response: StripeResponse[StripeIntent]) -> StripeIntent:
    if response.found is None or response.failure:
        raise _release_for(_failure_of(response))
    return response.found


def _failure_of(response: StripeResponse[StripeIntent]) -> Failure:
    return response.failure or Failure(ResponseKind.NO_ANSWER)


def _release_for(failure: Failure, kept: Mapping[str, int] | None = None) -> ReleaseLease:
    alarm = ANSWERS[failure.kind].charge_alarm
    return ReleaseLease(failure.kind, alarm=alarm, kept={**(kept or {}), **failure.details})


def _end_or_release(row: Payment, failure: Failure, tools: Tools, kept: Mapping[str, int] | None = None) -> Finalize:
    """What to finalize a refused row as. Our own request at fault: ReleaseLease for an hour, which a deploy may fix."""
    state = PaymentState.DECLINED
    if ANSWERS[failure.kind].charge is Action.REFUSE:
        state, now = PaymentState.NEEDS_REVIEW, tools.instruments.now()
        refused_at = row.refused_at or now
        if now - refused_at < REFUSED_SECONDS:
            raise _release_for(failure, {"refused_at": refused_at, **(kept or {})})
    code = failure.code or "invalid_request"
    return Finalize(state, code=code, stripe_message=failure.message, stripe_request_id=failure.request_id)
