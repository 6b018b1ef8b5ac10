"""The decisions about refunds as tables over all that can be."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from onecharge.payments.refund_rules import Sent, StripeRefund, decide, own, refusal_of
from onecharge.payments.stripe_responses import Deferred, Failure, ResponseKind
from tests.shop.builders import HOUR, OTHER_REFUND_ID, REFUND, REFUND_ID, T0

BY_HAND = StripeRefund("re_9", "succeeded", 300, "EUR")
FAILED_BY_HAND = replace(BY_HAND, status="failed")
OF_ANOTHER = replace(BY_HAND, refund_id=OTHER_REFUND_ID)
OTHERS: tuple[list[StripeRefund], ...] = ([], [BY_HAND], [FAILED_BY_HAND], [OF_ANOTHER, BY_HAND])
OWN = {
    status: StripeRefund("re_1", status, 400, "EUR", refund_id=REFUND_ID)
    for status in ("succeeded", "pending", "requires_action", "failed", "canceled")
}
SINCE = (0, T0, *(T0 - hours * HOUR + second for hours in (22, 72) for second in (0, 1)))
"""When the first request was sent: never, now, 22 or 72 hours ago or nearly so."""


@pytest.mark.parametrize("status", [None, *OWN])
def test_what_follows_from_all_that_stripe_may_show(status: str | None) -> None:
    """Its own refund is told, whatever else is so. Else nothing follows from a list that may lack what was sent. Then
    one that was refused is told; only what was not refused is sent, or sent again while its key is remembered."""
    for others, since, code in product(OTHERS, SINCE, (None, "charge_disputed")):
        if status:
            wanted: Any = OWN[status]
        elif T0 - 72 * HOUR < since <= (T0 if code else T0 - 22 * HOUR):
            wanted = Deferred
        else:
            wanted = code and StripeRefund(None, "refused", 400, "EUR", REFUND_ID, code)
        listed = [*others, *([OWN[status]] if status else [])]
        try:
            decided: Any = decide(REFUND.data, listed, sent=Sent(since, ("a",), code), now=T0)
        except Deferred:
            decided = Deferred
        assert decided == wanted, (others, since, code)


@pytest.mark.parametrize("since", SINCE)
@pytest.mark.parametrize("code", ["charge_disputed", None])
def test_an_answer_says_nothing_of_another_request(since: int, code: str | None) -> None:
    """Once each has its answer, none is open; what was sent 72 hours ago is listed, if it was made."""
    both = Sent(since, ("a",) if since else ()).once_more("b", T0)
    is_open = since > T0 - 72 * HOUR
    assert both == (Sent(since, ("a", "b")) if is_open else Sent(T0, ("b",)))
    answered = both.answered("b", code)
    assert answered == (Sent(since, ("a",), code) if is_open else Sent(0, (), code))
    assert answered.answered("b", None) == answered
    assert answered.answered("a", None) == Sent(0, (), code)


def test_a_refund_that_is_made_comes_before_one_that_failed() -> None:
    """Of several with its id, which only an error can make."""
    failed, made = OWN["failed"], OWN["succeeded"]
    assert own(REFUND_ID, [failed, OF_ANOTHER, made]) == own(REFUND_ID, [made, failed]) == made
    assert own(REFUND_ID, [OF_ANOTHER, BY_HAND]) is None


@pytest.mark.parametrize("kind", ResponseKind)
@pytest.mark.parametrize("code", ["charge_disputed", None])
def test_only_a_refusal_frees_the_amount(kind: ResponseKind, code: str | None) -> None:
    """An outage, a wrong API key or too little balance does not. Stripe has no code for more than is left."""
    is_refused = kind in (ResponseKind.REFUND_REFUSED, ResponseKind.AMOUNT_REFUSED)
    assert refusal_of(Failure(kind, code)) == ((code or "more_than_is_left") if is_refused else None)
