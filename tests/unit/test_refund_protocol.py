"""The decisions about refunds, one by one: pure functions of a row, of what Stripe shows, and of its answers."""

import itertools
from typing import Any

import pytest
import stripe

from onecharge.contract.refunds import RefundState
from onecharge.payments.refunds.protocol import (
    REFUND_RULES,
    FoundRefund,
    FrozenRefund,
    RefundAction,
    RefundResponseKind,
    kind_of,
    kind_of_refund,
    refund_id_of_canceled_order,
)
from onecharge.payments.stripe_responses import Failure, ResponseKind, classify
from tests.shop.builders import ORDER_ID, PAYMENT_INTENT
from tests.shop.shop import REFUND
from tests.shop.stripe import sdk_error
from tests.support.harness import PROJECT


def invalid(status: int, code: str | None = None, *, replay: bool = False, **details: Any) -> stripe.StripeError:
    return sdk_error(status, replay=replay, code=code, **details)


def test_a_refund_of_other_money_needs_a_person() -> None:
    """Its amount or currency is not the requested one."""
    request = FrozenRefund.of(REFUND.data, PAYMENT_INTENT)
    for found in (FoundRefund("re_1", "succeeded", 399, "EUR"), FoundRefund("re_1", "succeeded", 400, "USD")):
        assert kind_of_refund(request, found) is RefundResponseKind.MONEY_DIFFERS
    assert REFUND_RULES[RefundResponseKind.MONEY_DIFFERS].state is RefundState.NEEDS_REVIEW


KINDS: dict[RefundResponseKind, list[stripe.StripeError]] = {
    RefundResponseKind.UNKNOWN: [
        sdk_error(None),
        sdk_error(409, type="idempotency_error", code="idempotency_key_in_use"),
        sdk_error(429, type="rate_limit_error"),
        sdk_error(500),
    ],
    RefundResponseKind.KEY_SPENT: [
        sdk_error(500, replay=True),
        sdk_error(424, type="api_error", replay=True),
        sdk_error(400, type="idempotency_error"),
    ],
    RefundResponseKind.ACCOUNT: [
        invalid(401),
        invalid(403),
        invalid(404, "resource_missing"),
        invalid(400, "balance_insufficient"),
    ],
    RefundResponseKind.REFUSED: [
        invalid(400, "charge_already_refunded"),
        invalid(400, "charge_disputed"),
        invalid(400, "charge_disputed", replay=True),
        invalid(400, "amount_too_large", replay=True),
        invalid(400, "amount_too_large"),
        invalid(400, message="Refund amount (€4.00) is greater than unrefunded amount on charge (€1.00)"),
    ],
    RefundResponseKind.REFUSAL_REPLAYED: [
        invalid(400, "balance_insufficient", replay=True),
        invalid(403, replay=True),
        invalid(400, "parameter_unknown", replay=True),
    ],
    RefundResponseKind.INVALID: [
        invalid(400, "parameter_unknown"),
        sdk_error(402, code="card_declined"),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_answer_is_of_one_kind(kind: RefundResponseKind) -> None:
    """An unknown answer is never taken for a refusal."""
    assert {kind_of(classify(each)) for each in KINDS[kind]} == {kind}


_ROW_OF = {
    RefundAction.RETRY: "stays PENDING: looked up, then sent again",
    RefundAction.NEXT_KEY: "stays PENDING: looked up, then sent under the next key",
    RefundAction.LOOK_UP_ONLY: "stays PENDING: looked up, never sent again; after a day NEEDS_REVIEW",
    RefundAction.REFUSE: "stays PENDING: looked up, then sent again; after an hour NEEDS_REVIEW",
    RefundAction.LOOK_UP_THEN_FAIL: (
        "looked up once more, then FAILED; NEEDS_REVIEW if an earlier worker or request may still make it"
    ),
}
_MESSAGE_OF = {
    RefundAction.FINALIZE: "done",
    RefundAction.LOOK_UP_THEN_FAIL: "done",
    RefundAction.RETRY: "backoff",
    RefundAction.NEXT_KEY: "backoff",
    RefundAction.LOOK_UP_ONLY: "backoff, then done",
    RefundAction.REFUSE: "backoff, then done",
}


def test_the_documented_rules_are_the_codes() -> None:
    """docs/protocol.md says of each answer what the code does."""
    in_code = [
        [
            kind.value,
            _ROW_OF.get(rule.action, str(rule.state)),
            _MESSAGE_OF[rule.action] + (", alarm" if rule.alarm else ""),
        ]
        for kind, rule in REFUND_RULES.items()
    ]
    text = (PROJECT / "docs/protocol.md").read_text().split("## Refunds")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in row] for row in rows[2:]] == in_code


def test_only_a_refusal_or_a_returned_refund_fails() -> None:
    """An outage or a wrong secret frees no amount that may still be refunded."""
    failing = {kind for kind, rule in REFUND_RULES.items() if rule.state is RefundState.FAILED}
    assert failing == {RefundResponseKind.RETURNED, RefundResponseKind.REFUSED}
    assert {kind_of(Failure(kind)) for kind in ResponseKind} <= REFUND_RULES.keys()
    assert {rule.action for rule in REFUND_RULES.values()} == set(RefundAction)


def test_each_payment_intent_of_a_canceled_order_has_its_refund() -> None:
    """Two charges of an order are refunded separately."""
    ids = {refund_id_of_canceled_order(*each) for each in itertools.product((ORDER_ID, "ord_b"), ("pi_1", "pi_2"))}
    assert len(ids) == 4
