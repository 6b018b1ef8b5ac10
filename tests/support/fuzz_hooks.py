"""Hooks that test_api_fuzz.py loads into schemathesis: every second request is about an existing order.

Random requests nearly always have an unknown order id, an unknown payment method or a repeated key, so the first checks
refuse them. The hook replaces well-formed values by valid ones; malformed values stay.
"""

import itertools
import os
import re
from typing import Any

import schemathesis

_ORDER_IDS = itertools.cycle(os.environ["FUZZ_ORDER_IDS"].split(","))
_SKU, _CURRENCY = os.environ["FUZZ_SKU"], os.environ["FUZZ_CURRENCY"]
_VISA = "pm_card_visa"
_CARDS = itertools.cycle((_VISA, f"{_VISA}_chargeDeclinedInsufficientFunds", "pm_card_threeDSecure2Required"))
_COUNT = itertools.count()
_PLACED = set[str]()


@schemathesis.hook  # type: ignore[untyped-decorator]  # It is installed in another environment.
def after_call(context: Any, case: Any, response: Any) -> None:
    if response.status_code == 202:
        _PLACED.add(response.json().get("order_id"))


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    number = next(_COUNT)
    if case.path.endswith("/payment") and case.path_parameters.get("order_id") in _PLACED:
        # An order's payment is there once the worker has claimed it: a moment after the order.
        case.path_parameters = {**case.path_parameters, "order_id": next(_ORDER_IDS)}
    if number % 2:
        return
    if re.fullmatch(r"ord_[0-9a-f]{32}", str(case.path_parameters.get("order_id"))):
        case.path_parameters = {**case.path_parameters, "order_id": next(_ORDER_IDS)}
    if isinstance(case.body, dict) and str(case.body.get("payment_method")).startswith("pm_"):
        case.body = {**case.body, "payment_method": next(_CARDS)}
        if "items" in case.body:
            # OpenAPI does not know what is for sale, nor what it costs.
            case.body = {name: value for name, value in case.body.items() if name != "amount"} | {"currency": _CURRENCY}
            for item in case.body["items"] if isinstance(case.body["items"], list) else ():
                if isinstance(item, dict) and isinstance(item.get("sku"), str):
                    item["sku"] = _SKU
        case.headers["Idempotency-Key"] = f"{number}{case.headers.get('Idempotency-Key') or ''}"
