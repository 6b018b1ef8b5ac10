"""The refund, on one page: from a claimed row to its final state, by the rules of refund_rules.py.

look up ──► none: send ──► finalize             a fresh refund: three requests to Stripe
   │                ├── no response: release the lease, and look up again
   │                └── a replayed refusal: look up again, then send under the next key
   └── found: finalize as what it is

Only this module sends requests that refund. deliveries.py finalizes the row as `refund` says, or releases its lease.
"""

from dataclasses import replace

import stripe

from onecharge.payments.answers import ANSWERS, Action, cause_of_error
from onecharge.payments.refund_rules import (
    FinalizeRefund,
    LookUpLater,
    Refund,
    Send,
    StripeRefund,
    decide,
)
from onecharge.payments.refund_tools import RefundTools
from onecharge.payments.rows import ReleaseLease
from onecharge.payments.stripe_gateway import StripeResponse
from onecharge.payments.stripe_responses import Failure, LookupInconclusive, ResponseKind
from onecharge.runtime.alarms import Cause

KEYS_MAX = 4
"""Keys that one delivery uses: mostly one, and two after a refusal that Stripe has stored."""


def refund(row: Refund, tools: RefundTools) -> FinalizeRefund:
    """Refund a claimed row once; returns what to finalize it as.

    Raises:
        ReleaseLease: nothing more can be done now. The next delivery looks up again.
        WriteRefused: the lease is lost before a later key was used.
    """
    decision = decide(row, look_up(row, tools), now=tools.instruments.now())
    for _ in range(KEYS_MAX):
        if not isinstance(decision, Send):
            break
        if decision.key_number > row.key_number:
            # Before the request: whoever claims the row after this worker was killed knows that the key may be used.
            row = tools.refunds.write_key_number(row, decision.key_number)
        row = replace(row, key_number=decision.key_number)
        response = send(row, tools)
        failure = response.failure
        is_retried = failure and ANSWERS[failure.kind].refund is Action.RETRY
        if response.found and not response.is_replay:
            found = [response.found]
        else:
            # A replay proves that the refund was created, not its status; a refusal, only what this request met.
            found = [] if is_retried else look_up(row, tools)
        decision = decide(row, found, now=tools.instruments.now(), failure=failure)
        if decision == Send(row.key_number):
            why = "Stripe does not show the refund that it says it has created"
            raise ReleaseLease(why, alarm=Cause.STRIPE_INCONCLUSIVE)
    match decision:
        case FinalizeRefund():
            return decision
        case LookUpLater(why, alarm, kept):
            raise ReleaseLease(why, alarm=alarm, kept=kept)
        case Send(key_number):
            raise ReleaseLease("many keys replay a refusal", kept={"key_number": key_number})


# ---------------------------------------------------------------- its steps


def look_up(row: Refund, tools: RefundTools) -> list[StripeRefund]:
    """Stripe's refunds of this id. Raises ReleaseLease if they cannot be read, or not all."""
    tools.require_time()
    try:
        return tools.stripe.find_refunds(row.request.payment_intent_id, row.request.refund_id)
    except (LookupInconclusive, stripe.StripeError) as error:
        raise ReleaseLease("lookup inconclusive", alarm=cause_of_error(error)) from error


def send(row: Refund, tools: RefundTools) -> StripeResponse:
    """Create the refund, under the key of the row's number."""
    tools.wait_for_token(tools.rate.refunds.take)
    response = tools.stripe.create_refund(row.request, row.key_number)
    return response if response.found or response.failure else StripeResponse(failure=Failure(ResponseKind.NO_ANSWER))
