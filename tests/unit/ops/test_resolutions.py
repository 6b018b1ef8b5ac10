"""What a person may decide about a payment: only what Stripe has decided, or the protocol will."""

from typing import Any

import pytest

from onecharge.contract.states import PaymentState
from onecharge.payments.charges.protocol import Finalize, FoundIntent
from ops.resolutions import (
    CancelFirst,
    Refund,
    Refused,
    Reopen,
    Resolution,
    Seen,
    Write,
    decide_resolution,
)
from testing import builders

REVIEW, SUCCEEDED = PaymentState.NEEDS_REVIEW, PaymentState.SUCCEEDED
PAID, RETRY, CANCEL = Resolution.PAID, Resolution.RETRY, Resolution.CANCEL


def intent(status: str, id_: str = "pi_1", **changes: Any) -> FoundIntent:
    return builders.intent(status, payment_intent_id=id_, **changes)


def seen(
    *intents: FoundIntent, state: PaymentState = REVIEW, refunded: dict[str, int] | None = None, **row: Any
) -> Seen:
    return Seen(builders.payment(state=state, **row), intents, refunded or {})


OPEN, DONE, GONE = (intent(status) for status in ("requires_payment_method", "succeeded", "canceled"))
BY_CUSTOMER = intent("canceled", cancellation_reason="requested_by_customer")
OTHER_OPEN, OTHER_DONE = intent("requires_action", "pi_2"), intent("succeeded", "pi_2")
OTHER_MONEY = intent("succeeded", amount_minor=1)


@pytest.mark.parametrize(
    ("resolution", "given", "decision"),
    [
        # Paid: by the one that succeeded, with the frozen money.
        (PAID, seen(DONE), Write(Finalize(SUCCEEDED, "pi_1", 0))),
        (PAID, seen(OPEN, OTHER_DONE), CancelFirst(("pi_1",))),
        (PAID, seen(GONE, OTHER_DONE), Write(Finalize(SUCCEEDED, "pi_2", 0))),
        (PAID, seen(DONE, OTHER_DONE, refunded={"pi_2": 1099}), "several PaymentIntents"),
        (PAID, seen(DONE, refunded={"pi_1": 1099}), "refunded in full"),
        (PAID, seen(OPEN), "no PaymentIntent of the order succeeded"),
        (PAID, seen(payment_intent_id=None), "no PaymentIntent of the order succeeded"),
        # The row's own is not shown, for whatever reason: it may have succeeded, too.
        (PAID, seen(OTHER_DONE), "Stripe has no pi_1"),
        (PAID, seen(OTHER_MONEY), "frozen are 1099 EUR"),
        (PAID, seen(DONE, intent("processing", "pi_2")), "is processing pi_2"),
        # Again: nothing has succeeded, nothing else can.
        (RETRY, seen(OPEN), Reopen(cancel=False)),
        (RETRY, seen(GONE), Reopen(cancel=False)),
        (RETRY, seen(payment_intent_id=None), Reopen(cancel=False)),
        (RETRY, seen(OPEN, OTHER_OPEN), CancelFirst(("pi_2",))),
        (RETRY, seen(DONE), "pi_1 succeeded"),
        (RETRY, seen(OPEN, OTHER_DONE), "pi_2 succeeded"),
        (RETRY, seen(OPEN, OTHER_DONE, refunded={"pi_2": 1099}), "pi_2 succeeded"),
        (RETRY, seen(intent("processing")), "is processing"),
        (RETRY, seen(intent("requires_capture")), "cancel it at Stripe first"),
        (RETRY, seen(BY_CUSTOMER), "resolve it as cancel"),
        (RETRY, seen(OPEN, cancel_requested_at=1), "resolve it as cancel"),
        (RETRY, seen(), "Stripe has no pi_1"),
        (RETRY, seen(intent("requires_payment_method", amount_minor=1)), "was not frozen"),
        # Canceled: by the protocol, on Stripe's word.
        (CANCEL, seen(OPEN), Reopen(cancel=True)),
        (CANCEL, seen(OPEN, cancel_requested_at=1), Reopen(cancel=True)),
        (CANCEL, seen(BY_CUSTOMER), Reopen(cancel=True)),
        (CANCEL, seen(OPEN, OTHER_OPEN), CancelFirst(("pi_2",))),
        (CANCEL, seen(DONE), "pi_1 succeeded"),
        # The second of two.
        (Resolution.REFUND_SECOND, seen(DONE, OTHER_DONE, state=SUCCEEDED), Refund(OTHER_DONE)),
        (Resolution.REFUND_SECOND, seen(DONE, OTHER_DONE), Refund(OTHER_DONE)),
        (Resolution.REFUND_SECOND, seen(DONE, state=SUCCEEDED), "no other PaymentIntent"),
        (Resolution.REFUND_SECOND, seen(OPEN, OTHER_DONE), "nothing is second"),
        (Resolution.REFUND_SECOND, seen(OTHER_MONEY, OTHER_DONE), "nothing is second"),
        (
            Resolution.REFUND_SECOND,
            seen(DONE, OTHER_DONE, state=SUCCEEDED, refunded={"pi_1": 1099}),
            "the other one pays the order",
        ),
        (Resolution.REFUND_SECOND, seen(DONE, OTHER_DONE, refunded={"pi_2": 1099}), "no other PaymentIntent"),
        (Resolution.REFUND_SECOND, seen(DONE, OTHER_DONE, refunded={"pi_2": 1}), "refunded in part"),
        (Resolution.REFUND_SECOND, seen(DONE, OTHER_DONE, intent("succeeded", "pi_3")), "name one"),
        (Resolution.REFUND_SECOND, seen(DONE, OTHER_DONE, state=PaymentState.DECLINED), "DECLINED"),
    ],
)
def test_a_resolution_follows_from_what_stripe_shows(resolution: Resolution, given: Seen, decision: object) -> None:
    """Or is refused, with the reason and what can be done."""
    decided = decide_resolution(resolution, given)
    if isinstance(decision, str):
        assert isinstance(decided, Refused)
        assert decision in decided.why
    else:
        assert decided == decision


@pytest.mark.parametrize("state", [state for state in PaymentState if state is not REVIEW])
@pytest.mark.parametrize("resolution", [PAID, RETRY, CANCEL])
def test_only_what_needs_review_is_resolved(resolution: Resolution, state: PaymentState) -> None:
    """Whatever Stripe shows: the workers decide everything else."""
    for each in (OPEN, DONE, GONE):
        assert isinstance(decide_resolution(resolution, seen(each, state=state)), Refused)
    assert isinstance(decide_resolution(resolution, Seen(None)), Refused)


def test_the_one_that_is_named_counts() -> None:
    """Of two that succeeded, if the other is refunded; none of another order; none that did not succeed."""
    two = seen(DONE, OTHER_DONE, refunded={"pi_2": 1099})
    assert decide_resolution(PAID, two, chosen="pi_1") == Write(Finalize(SUCCEEDED, "pi_1", 0))
    for given, chosen in (
        (two, "pi_2"),
        (seen(DONE, OTHER_DONE), "pi_1"),
        (seen(DONE), "pi_9"),
        (seen(DONE, OTHER_OPEN), "pi_2"),
    ):
        assert isinstance(decide_resolution(PAID, given, chosen=chosen), Refused)
