"""Does this deployment work? A signed-in order in Stripe's test mode is paid, compared with Stripe, and refunded.

The webhook endpoint is compared first, as by `webhook create`: a restricted key needs to read webhook endpoints
(STRIPE_SECRET_KEY). The access tokens are those of `ops token`. API_URL names a custom domain of the API. Live mode is
refused: no real money moves. The order stays, at Stripe and in the tables, until it expires.
"""

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import requests

from onecharge.contract.money import as_money
from ops import webhook
from ops.connection import Stack
from ops.facts import gather
from ops.findings import FINE, find
from ops.output import FOUND, Problem, Report
from ops.token import STAFF, access_token

PATIENCE_SECONDS = 120
"""How long the payment may take, and then the refund."""


def run(stack: Stack, arguments: Namespace) -> Report:
    if not stack.secret("StripeSecret").startswith(("sk_test_", "rk_test_")):
        raise Problem("StripeSecret has no key of Stripe's test mode: a check moves no real money")
    if not arguments.yes:
        return Report({"would": f"order, pay and refund the first of the prices of {stack.api_url}"}, is_dry_run=True)
    if webhook.run(stack, Namespace(yes=False)).is_dry_run:
        raise _wrong(f"Stripe has no endpoint as it should be: `{stack.command} webhook create --yes`")
    price = _request(stack, "GET", "/prices")["prices"][0]
    currency, amount = price["currency"], price["unit_amount"]
    items = [{"sku": price["sku"], "quantity": 1}]
    wanted = {"currency": currency, "amount": amount, "items": items, "payment_method": "pm_card_visa"}
    order_id = _request(stack, "POST", "/orders", wanted)["order_id"]
    _wait_for(stack, order_id, "PAID", lambda order: order["status"])
    _request(stack, "POST", f"/orders/{order_id}/refunds", {}, scope=STAFF)
    _wait_for(stack, order_id, "SUCCEEDED", lambda order: order["refunds"][0]["status"])
    facts = gather(stack, order_id)
    if (first := find(facts)[0]).severity != FINE:
        raise _wrong(f"{order_id}: {first.says}")
    if facts.own is None or facts.own.refunded.amount_refunded_minor != amount:
        raise _wrong(f"{order_id} is not refunded in full at Stripe")
    return Report({"stack": stack.name, "order_id": order_id, "paid_and_refunded": as_money(amount, currency)})


def _wrong(what: str) -> Problem:
    return Problem(what, FOUND)


def _request(stack: Stack, method: str, path: str, body: Any = None, *, scope: str = "") -> Any:
    url, headers = f"{stack.api_url}{path}", {"Authorization": f"Bearer {access_token(stack, scope)}"}
    headers["Idempotency-Key"] = str(uuid4())
    try:
        # The timeout is longer than an HTTP API waits for its function.
        response = requests.request(method, url, json=body, headers=headers, timeout=35)
        response.raise_for_status()
        return response.json()
    except requests.RequestException as error:
        said = "" if error.response is None else f": {error.response.text[:300]}"
        raise _wrong(f"{method} {path}: {error}{said}") from None


def _wait_for(stack: Stack, order_id: str, wanted: str, status_of: Callable[[Any], str]) -> None:
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while (seen := status_of(_request(stack, "GET", f"/orders/{order_id}"))) != wanted:
        if time.monotonic() > ends_at:
            raise _wrong(f"{order_id} is {seen}, after {PATIENCE_SECONDS} s")
        time.sleep(1)
