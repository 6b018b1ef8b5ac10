"""What a person may decide about a payment or a refund: only what Stripe has decided, or the protocol will."""

from dataclasses import replace
from itertools import product
from typing import Any

from onecharge.contract.refunds import RefundState
from onecharge.contract.states import PaymentState
from onecharge.payments.after_charge import AfterCharge
from onecharge.payments.charge_rules import Finalize, StripeIntent
from onecharge.payments.refund_rules import SPENT_KEY_SECONDS, FinalizeRefund, FrozenRefund, Refund, StripeRefund
from ops.resolutions import (
    CancelFirst,
    Close,
    Decision,
    RefundResolution,
    RefundSecond,
    Refused,
    Reopen,
    Resolution,
    Seen,
    Write,
    decide_refund,
    decide_resolution,
)
from tests.shop import builders

REVIEW, SUCCEEDED = PaymentState.NEEDS_REVIEW, PaymentState.SUCCEEDED
PAID, RETRY, CANCEL, SECOND = Resolution


def intent(status: str, id_: str = "pi_1", **changes: Any) -> StripeIntent:
    return builders.intent(status, payment_intent_id=id_, **changes)


def seen(
    *intents: StripeIntent, state: PaymentState = REVIEW, refunded: dict[str, int] | None = None, **row: Any
) -> Seen:
    after_charge = {each: AfterCharge(amount_minor, {}) for each, amount_minor in (refunded or {}).items()}
    return Seen(builders.payment(state=state, **row), intents, after_charge)


OPEN, DONE = intent("requires_payment_method"), intent("succeeded")
GONE, BY_HAND = (intent("canceled", cancellation_reason=reason) for reason in ("abandoned", "fraudulent"))
BY_CUSTOMER = intent("canceled", cancellation_reason="requested_by_customer")
OTHER_OPEN, OTHER_DONE = intent("requires_action", "pi_2"), intent("succeeded", "pi_2")
MONEY_DIFFERS = intent("succeeded", amount_minor=1)
REFUNDED = AfterCharge(1099, {})
LOST, DISPUTED = AfterCharge(0, {"du_1": "lost"}), AfterCharge(0, {"du_1": "under_review"})


def after(given: Seen, **after_charge: AfterCharge) -> Seen:
    return replace(given, after_charge={**given.after_charge, **after_charge})


CASES: list[tuple[Resolution, Seen, Decision | str]] = [
    # Paid: by the one that succeeded, with the frozen money.
    (PAID, seen(DONE), Write(Finalize(SUCCEEDED, "pi_1", 0))),
    (PAID, seen(OPEN, OTHER_DONE), CancelFirst(("pi_1",))),
    (PAID, seen(GONE, OTHER_DONE), Write(Finalize(SUCCEEDED, "pi_2", 0))),
    # With what happened after the charge: the row may stand for a lost one, which knew of it.
    (
        PAID,
        seen(DONE, refunded={"pi_1": 1}),
        Write(Finalize(SUCCEEDED, "pi_1", 0, after_charge=AfterCharge(1, {}))),
    ),
    (
        PAID,
        seen(GONE, OTHER_DONE, refunded={"pi_2": 1}),
        Write(Finalize(SUCCEEDED, "pi_2", 0, after_charge=AfterCharge(1, {}))),
    ),
    (PAID, seen(DONE, OTHER_DONE, refunded={"pi_2": 1099}), "several PaymentIntents"),
    (PAID, seen(OPEN, OTHER_DONE, refunded={"pi_2": 1099}), CancelFirst(("pi_1",))),
    # Nobody wants it any more: what was charged is refunded in full, and no other resolution would end the review.
    (PAID, seen(DONE, refunded={"pi_1": 1099}), Write(Finalize(SUCCEEDED, "pi_1", 0, after_charge=REFUNDED))),
    (CANCEL, seen(DONE, refunded={"pi_1": 1099}), "resolve it as paid"),
    (PAID, seen(OPEN), "no PaymentIntent of the order succeeded"),
    (PAID, seen(payment_intent_id=None), "no PaymentIntent of the order succeeded"),
    # The row's own is not shown: it may have succeeded, too.
    (PAID, seen(OTHER_DONE), "Stripe has no pi_1"),
    (PAID, seen(MONEY_DIFFERS), "frozen are 10.99 EUR"),
    (PAID, seen(DONE, intent("processing", "pi_2")), "is processing pi_2"),
    # Again: nothing has succeeded, nothing else can.
    (RETRY, seen(OPEN), Reopen(cancel=False)),
    (RETRY, seen(GONE), Reopen(cancel=False)),
    (RETRY, seen(BY_HAND, replace(BY_HAND, payment_intent_id="pi_2")), Reopen(False, ("pi_1", "pi_2"))),
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
    (CANCEL, seen(BY_HAND), Reopen(cancel=True)),
    (CANCEL, seen(OPEN, OTHER_OPEN), CancelFirst(("pi_2",))),
    (CANCEL, seen(DONE), "pi_1 succeeded"),
    # Of other money, it cannot pay the order.
    (CANCEL, seen(MONEY_DIFFERS), "pi_1 succeeded"),
    (CANCEL, seen(MONEY_DIFFERS, refunded={"pi_1": 1100}), Close()),
    (CANCEL, seen(MONEY_DIFFERS, OTHER_OPEN, refunded={"pi_1": 1100}), CancelFirst(("pi_2",))),
    (CANCEL, seen(MONEY_DIFFERS, OTHER_DONE, refunded={"pi_1": 1100, "pi_2": 1099}), "succeeded"),
    # The second of two.
    (SECOND, seen(DONE, OTHER_DONE, state=SUCCEEDED), RefundSecond(OTHER_DONE)),
    (SECOND, seen(DONE, OTHER_DONE), RefundSecond(OTHER_DONE)),
    (SECOND, seen(DONE, state=SUCCEEDED), "no other PaymentIntent"),
    (SECOND, seen(OPEN, OTHER_DONE), "nothing is second"),
    (SECOND, seen(MONEY_DIFFERS, OTHER_DONE), "nothing is second"),
    (
        SECOND,
        seen(DONE, OTHER_DONE, state=SUCCEEDED, refunded={"pi_1": 1099}),
        "the other one pays the order",
    ),
    (SECOND, seen(DONE, OTHER_DONE, refunded={"pi_2": 1099}), "no other PaymentIntent"),
    (SECOND, seen(DONE, OTHER_DONE, refunded={"pi_2": 1}), "refunded in part"),
    (SECOND, seen(DONE, OTHER_DONE, intent("succeeded", "pi_3")), "name one"),
    (SECOND, seen(DONE, OTHER_DONE, state=PaymentState.DECLINED), "DECLINED"),
    # A dispute that is lost gives the money back, and Stripe refunds no charge that is disputed.
    (SECOND, after(seen(DONE, OTHER_DONE), pi_1=LOST), "the other one pays the order"),
    (SECOND, after(seen(DONE, OTHER_DONE), pi_1=DISPUTED), "pi_1, which the row names, is disputed"),
    (SECOND, after(seen(DONE, OTHER_DONE), pi_2=LOST), "no other PaymentIntent"),
    (PAID, after(seen(DONE), pi_1=LOST), Write(Finalize(SUCCEEDED, "pi_1", 0, after_charge=LOST))),
    (CANCEL, after(seen(MONEY_DIFFERS), pi_1=LOST), Close()),
]
"""What follows; for a refusal, a part of its reason."""


def test_a_resolution_follows_from_what_stripe_shows() -> None:
    """Or is refused, with the reason and what can be done."""
    wrong = []
    for resolution, given, decision in CASES:
        decided = decide_resolution(resolution, given)
        is_refused = isinstance(decided, Refused) and isinstance(decision, str) and decision in decided.why
        if decided != decision and not is_refused:
            wrong.append((resolution, given, decided))
    assert wrong == []


def test_only_what_needs_review_is_resolved() -> None:
    """Whatever Stripe shows: the workers decide everything else."""
    others = [state for state in PaymentState if state is not REVIEW]
    cases = [seen(each, state=state) for state, each in product(others, (OPEN, DONE, GONE))]
    decided = [
        decide_resolution(resolution, each) for resolution in (PAID, RETRY, CANCEL) for each in [*cases, Seen(None)]
    ]
    assert {type(each) for each in decided} == {Refused}


def test_the_one_that_is_named_counts() -> None:
    """Of two that succeeded, if the other is refunded; none of another order; none that did not succeed."""
    two = seen(DONE, OTHER_DONE, refunded={"pi_2": 1099})
    assert decide_resolution(PAID, two, chosen="pi_1") == Write(Finalize(SUCCEEDED, "pi_1", 0))
    both = seen(DONE, OTHER_DONE, refunded={"pi_1": 1099, "pi_2": 1099})
    refunded = Finalize(SUCCEEDED, "pi_2", 0, after_charge=REFUNDED)
    assert decide_resolution(PAID, both, chosen="pi_2") == Write(refunded)
    lost = after(seen(DONE, OTHER_DONE, refunded={"pi_2": 0}), pi_1=LOST)
    other = Finalize(SUCCEEDED, "pi_2", 0, after_charge=AfterCharge(0, {}))
    assert decide_resolution(PAID, lost, chosen="pi_2") == Write(other)
    for given, chosen in (
        (lost, "pi_1"),
        (two, "pi_2"),
        (seen(DONE, OTHER_DONE), "pi_1"),
        (seen(DONE), "pi_9"),
        (seen(DONE, OTHER_OPEN), "pi_2"),
    ):
        assert isinstance(decide_resolution(PAID, given, chosen=chosen), Refused)


# ---------------------------------------------------------------- refunds

NOW = 1_800_000_000
MADE, FAILED = RefundResolution
DAY = SPENT_KEY_SECONDS


def refund(state: RefundState = RefundState.NEEDS_REVIEW, age: int = 0) -> Refund:
    request = FrozenRefund("ord_1", "rfd_1", 1, 1000, "EUR", "pi_1", NOW)
    return Refund(request=request, state=state, finalized_at=NOW - age)


def found(status: str, id_: str = "re_1", *, amount: int = 1000) -> StripeRefund:
    return StripeRefund(id_, status, amount, "EUR", failure_reason="lost_card" if status == "failed" else None)


def test_a_refund_is_resolved_as_stripe_shows_it() -> None:
    """FAILED frees the amount: only if nothing gives it back, now or later."""
    cases = [
        (MADE, [found("succeeded")], 0, RefundState.SUCCEEDED),
        (MADE, [found("pending")], 0, RefundState.SUCCEEDED),
        (MADE, [found("succeeded", amount=1)], 0, None),
        (MADE, [found("succeeded"), found("succeeded", "re_2")], 0, RefundState.SUCCEEDED),
        (MADE, [found("failed")], 0, None),
        (MADE, [found("requires_action")], 0, None),
        (MADE, [], DAY, None),
        (FAILED, [found("failed")], 0, RefundState.FAILED),
        (FAILED, [found("failed"), found("canceled", "re_2")], 0, RefundState.FAILED),
        (FAILED, [found("failed"), found("succeeded", "re_2")], DAY, None),
        (FAILED, [found("requires_action")], DAY, None),
        (FAILED, [], DAY, RefundState.FAILED),
        (FAILED, [], DAY - 1, None),
    ]
    for resolution, shown, age, state in cases:
        decided = decide_refund(resolution, refund(age=age), shown, now=NOW)
        assert (decided.state if isinstance(decided, FinalizeRefund) else None) == state, (resolution, shown, age)


def test_only_a_refund_that_needs_review_is_resolved() -> None:
    """Also not a refund without a row."""
    rows = [None, *(refund(state, DAY) for state in RefundState if state is not RefundState.NEEDS_REVIEW)]
    shown: list[list[StripeRefund]] = [[], [found("succeeded")], [found("failed")]]
    decided = [decide_refund(*each, now=NOW) for each in product(RefundResolution, rows, shown)]
    assert {type(each) for each in decided} == {Refused}
