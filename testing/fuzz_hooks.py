"""Loaded into schemathesis by test_api_fuzz.py: every other request is about an order that is there.

What is made at random is nearly always an order that nobody placed, a card that Stripe does not know, or the shortest
key once more; those answers come from the API's first lines. Whatever is not well-formed stays as it is.
"""

import itertools
import os
import re
from typing import Any

import schemathesis

_ORDER_IDS = itertools.cycle(os.environ["FUZZ_ORDER_IDS"].split(","))
_CARDS = itertools.cycle(
    ("pm_card_visa", "pm_card_visa_chargeDeclinedInsufficientFunds", "pm_card_threeDSecure2Required")
)
_TURN = itertools.count()
_ENOUGH_MINOR = 20_000
"""Above the minimum of every currency; the description cannot say what depends on another field."""


@schemathesis.hook  # type: ignore[untyped-decorator]  # It is installed in another environment.
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    turn = next(_TURN)
    if turn % 2:
        return
    if re.fullmatch(r"ord_[0-9a-f]{32}", str(case.path_parameters.get("order_id"))):
        case.path_parameters = {**case.path_parameters, "order_id": next(_ORDER_IDS)}
    if isinstance(case.body, dict) and str(case.body.get("payment_method")).startswith("pm_"):
        case.body = {**case.body, "payment_method": next(_CARDS)}
        items = case.body.get("items")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and item.get("unit_amount") in range(1, _ENOUGH_MINOR):
                item["unit_amount"] = _ENOUGH_MINOR
        case.headers["Idempotency-Key"] = f"{turn}{case.headers.get('Idempotency-Key') or ''}"
