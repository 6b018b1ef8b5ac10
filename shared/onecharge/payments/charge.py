"""Charges a claimed row and returns its outcome, by the rules of docs/protocol.md.

    create the PaymentIntent ─► store its id ─► decide by its status ─┬─► confirm or cancel it, then decide again
      └─► held: the order is too old, or no key is left               └─► finalize, or give the lease back

Only this module sends confirms, the one request that charges. charge_rules.py decides the next step, as a pure
function; deliveries.py writes the outcome that `charge` returns, or gives the lease back. `tools.payments` is the table
(payments_table.py). `tools.stripe` sends the requests (payment_intents.py), none after the delivery's deadline: that is
what `tools.wait_for_token`, `fetch_intent` and `cancel` see to. The last two also read the charge's dispute, if any.
"""

from dataclasses import replace

from onecharge.contract.states import PaymentState
from onecharge.payments.charge_rules import (
    KEY_AGES_SECONDS,
    NOT_CHARGEABLE,
    Cancel,
    Confirm,
    Held,
    Outcome,
    decide,
    is_held,
    window_age_seconds,
)
from onecharge.payments.payments_table import KEYS_USED_UP, PARAMETERS_DIFFER, Payment
from onecharge.payments.stripe_responses import Deferred, Failure, ResponseKind, StripeIntent
from onecharge.payments.tools import Tools
from onecharge.runtime.alarms import Cause

STEPS_MAX = 3
"""One decision before a confirm or cancel, one after it, and one more in case the status has changed."""


def charge(row: Payment, tools: Tools) -> Outcome:
    """Charge a claimed row once; returns the outcome to write.

    Raises:
        Deferred: nothing more can be done now. The next delivery continues from here.
        WriteRefused: another worker has claimed the row, or has stored the id.
    """
    if row.payment_intent_id:
        intent = tools.fetch_intent(row.payment_intent_id)
    else:
        created = create(row, tools)
        if isinstance(created, Outcome):
            return created
        # Stored before any money can move: every other worker finds this PaymentIntent and confirms no other.
        intent, row = created, tools.payments.store_id(row, created.payment_intent_id)
    is_answered = False
    for _ in range(STEPS_MAX):
        match decide(row, intent, is_answered=is_answered):
            case Outcome() as outcome:
                return outcome
            case Cancel():
                intent = tools.cancel(intent)
            case Confirm():
                intent, is_answered = confirm(row, tools), True
            case Deferred() as deferred:
                raise deferred
    raise Deferred("the PaymentIntent keeps changing", alarm=Cause.STRIPE_INCONCLUSIVE)


def create(row: Payment, tools: Tools) -> StripeIntent | Outcome:
    """Create the order's PaymentIntent; no money moves. Returns Outcome if Stripe refuses its amount or currency.

    Every worker starts with the window's first key. If a key replays a failure, they all move on to the same next one.
    """
    age_seconds = window_age_seconds(row, tools.now())
    if is_held(row, tools.now()):
        raise Held(row.held_because or "too old to create its PaymentIntent")  # reconcile raises the alarm, daily.
    for number, since_seconds in enumerate(KEY_AGES_SECONDS):
        if number and age_seconds < since_seconds:
            raise Deferred("each key so far replays a failure, and the next one is not due yet")
        tools.wait_for_token(tools.rate.creates.take)
        response = tools.stripe.create(row, number)
        failure = response.failure
        if response.intent and not response.intent.takes_cards:
            # Confirming it would decline every card. Workers that cancel treat it as a failure, too, so that all
            # workers arrive at the same PaymentIntent.
            message = "payment_method_types has no card: is card_payments active?"
            failure = Failure(ResponseKind.ACCOUNT, message=message)
        if failure is None:
            intent = response.shown()
            # A replay proves the PaymentIntent's id, not its current status.
            return tools.fetch_intent(intent.payment_intent_id) if response.is_replay else intent
        if failure.kind is ResponseKind.AMOUNT_REFUSED:
            return Outcome(PaymentState.CANCELED, reason=NOT_CHARGEABLE)
        if failure.kind is ResponseKind.OTHER_PARAMETERS:
            raise Held(PARAMETERS_DIFFER, alarm=Cause.REQUEST_REFUSED, kept={"held_because": PARAMETERS_DIFFER})
        # Only a replay shows that this key is used up.
        if not response.is_replay:
            raise failure.deferred
    raise Held(KEYS_USED_UP, alarm=Cause.STRIPE_INCONCLUSIVE, kept={"held_because": KEYS_USED_UP})


_ANSWERS_OF_A_CONFIRM = (ResponseKind.DECLINED, ResponseKind.UNEXPECTED_STATE, ResponseKind.AMOUNT_REFUSED)
"""Failures that settle an attempt: Stripe has executed its confirm, or never will. AMOUNT_REFUSED settles only the
attempt: the amount may be too large for this card's network, and another card may still work."""


def confirm(row: Payment, tools: Tools) -> StripeIntent:
    """Confirm the row's PaymentIntent under the attempt's one key; returns the PaymentIntent after the answer."""
    tools.wait_for_token(tools.rate.confirms.take)
    response = tools.stripe.confirm(row)
    failure = response.failure
    if failure is None and not response.is_replay:
        return response.shown()
    if failure and not response.is_replay and failure.kind not in _ANSWERS_OF_A_CONFIRM:
        raise failure.deferred
    intent = tools.fetch_intent(str(row.payment_intent_id))
    # An update may have cleared the PaymentIntent's error: the response still says why it was declined.
    return replace(intent, error_code=intent.error_code or (failure.code if failure else None))
