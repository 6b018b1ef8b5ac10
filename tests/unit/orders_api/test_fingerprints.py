"""The fingerprints of requests are the same in every release: a retry across a deployment is still a retry."""

from typing import Any

import pytest
from pydantic import BaseModel, create_model

from onecharge.orders.ids import fingerprint_of
from orders_api.pay_again import PaymentRequest
from orders_api.place_order import OrderRequest
from orders_api.refund_order import RefundRequest
from tests.support.orders_api import order

GOLDEN: dict[str, tuple[type[BaseModel], dict[str, Any], str]] = {
    "an order": (OrderRequest, order(), "ea6854a44b1d988bdb8a38b3780c419b"),
    "an order alike": (OrderRequest, order(amount=2500), "ea6854a44b1d988bdb8a38b3780c419b"),
    "an attempt": (PaymentRequest, {"payment_method": "pm_card_mastercard"}, "dd65e846cb312f8c9d94a48f95719fc8"),
    "a refund": (RefundRequest, {"amount": 1000}, "2bc3ff4662cdced9a155389dad67abf9"),
    "a refund of the rest": (RefundRequest, {}, "44136fa355b3678a1146ad16f7e8649e"),
}
"""The first half of each."""


@pytest.mark.parametrize(("model", "content", "golden"), GOLDEN.values(), ids=GOLDEN)
def test_a_fingerprint_is_the_same_in_every_release(
    model: type[BaseModel], content: dict[str, Any], golden: str
) -> None:
    """If this fails, clients that retry across the deployment get 422: change the request so that it passes. A release
    may add an optional field: neither None nor its default changes the fingerprint; another value does."""
    added: Any = {"note": (str | None, None), "gift": (bool, False)}
    next_release = create_model("NextRelease", __base__=model, **added)
    for release in (model, next_release):
        assert fingerprint_of(release.model_validate(content))[:32] == golden
    assert fingerprint_of(next_release.model_validate({**content, "note": None}))[:32] == golden
    assert fingerprint_of(next_release.model_validate({**content, "gift": True}))[:32] != golden
