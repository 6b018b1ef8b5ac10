"""The decisions about refunds, one by one: pure functions of a row, of what Stripe shows, and of its answers."""

from dataclasses import replace
from typing import Any

import pytest
import stripe

from onecharge.contract.refunds import RefundState
from onecharge.payments.answers import ANSWERS, Action
from onecharge.payments.refund_rules import FinalizeRefund, FrozenRefund, Refund, StripeRefund, decide
from onecharge.payments.stripe_responses import ResponseKind, classify
from tests.shop.builders import PAYMENT_INTENT
from tests.shop.shop import REFUND
from tests.shop.stripe import sdk_error
from tests.support.harness import PROJECT


def invalid(status: int, code: str | None = None, *, replay: bool = False, **details: Any) -> stripe.StripeError:
    return sdk_error(status, replay=replay, code=code, **details)


def final(*, number: int = 1, **changes: Any) -> FinalizeRefund:
    """What follows if Stripe shows this refund of the id, or this many."""
    request = FrozenRefund.of(REFUND.data, PAYMENT_INTENT)
    found = replace(StripeRefund("re_1", "succeeded", request.amount_minor, request.currency), **changes)
    decision = decide(Refund(request=request, state=RefundState.PENDING), [found] * number, now=0)
    assert isinstance(decision, FinalizeRefund)
    return decision


@pytest.mark.parametrize("other", [{"amount_minor": 399}, {"currency": "USD"}])
def test_a_refund_of_other_money_needs_a_person(other: dict[str, Any]) -> None:
    """Its amount or currency is not the requested one."""
    assert final(**other).state is RefundState.NEEDS_REVIEW


def test_the_documented_statuses_are_the_codes() -> None:
    """docs/refunds.md says what a refund that Stripe shows becomes."""
    in_code = {
        "succeeded, pending": [final(), final(status="pending")],
        "failed, canceled": [final(status="failed"), final(status="canceled")],
        "requires_action, or a status that is not known": [final(status="requires_action"), final(status="new")],
        "another amount or currency": [final(amount_minor=399), final(currency="USD")],
        "several refunds of one id": [final(number=2)],
    }
    text = (PROJECT / "docs/refunds.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"][2:]
    # Whichever of a row's refunds Stripe shows, the row says what follows.
    said = {
        shown: {(each.state, "done, alarm" if each.alarm else "done") for each in finals}
        for shown, finals in in_code.items()
    }
    assert [(shown, {tuple(rest)}) for shown, *rest in rows] == list(said.items())


ERRORS: dict[tuple[Action, bool], list[stripe.StripeError]] = {
    (Action.RETRY, False): [
        sdk_error(None),
        sdk_error(409, type="idempotency_error", code="idempotency_key_in_use"),
        sdk_error(429, type="rate_limit_error"),
        sdk_error(500),
    ],
    (Action.LOOK_UP, True): [
        sdk_error(500, replay=True),
        sdk_error(424, type="api_error", replay=True),
        sdk_error(400, type="idempotency_error"),
    ],
    (Action.RETRY, True): [
        invalid(401),
        invalid(403),
        invalid(404, "resource_missing"),
        invalid(400, "balance_insufficient"),
    ],
    (Action.FAIL, True): [
        invalid(400, "charge_already_refunded"),
        invalid(400, "charge_disputed"),
        invalid(400, "charge_disputed", replay=True),
        invalid(400, "amount_too_large", replay=True),
        invalid(400, "amount_too_large"),
        invalid(400, message="Refund amount (€4.00) is greater than unrefunded amount on charge (€1.00)"),
    ],
    (Action.KEY_SPENT, False): [
        invalid(400, "balance_insufficient", replay=True),
        invalid(403, replay=True),
        invalid(400, "parameter_unknown", replay=True),
    ],
    (Action.REFUSE, True): [
        invalid(400, "parameter_unknown"),
        sdk_error(402, code="card_declined"),
    ],
}


@pytest.mark.parametrize("answer", ERRORS)
def test_each_error_has_one_answer(answer: tuple[Action, bool]) -> None:
    """An unknown error is never taken for a refusal; the second says whether it is an alarm."""
    answers = [ANSWERS[classify(each).kind] for each in ERRORS[answer]]
    assert {(each.refund, each.refund_alarm is not None) for each in answers} == {answer}


def test_only_a_refusal_fails_a_refund_that_stripe_does_not_show() -> None:
    """An outage or a wrong secret frees no amount that may still be refunded."""
    failing = {kind for kind, each in ANSWERS.items() if each.refund is Action.FAIL}
    assert failing == {
        ResponseKind.REFUND_REFUSED,
        ResponseKind.AMOUNT_REFUSED,
        ResponseKind.STORED_AMOUNT_TOO_LARGE,
    }
