"""Does this deployment work? A signed-in order in Stripe's test mode is paid, compared with Stripe, and refunded.

The webhook endpoint is looked at first: a restricted key needs to read webhook endpoints (STRIPE_SECRET_KEY).
TOKEN_COMMAND prints an access token; without one it is `ops token`. Its last argument is the id of a customer;
`--scope SCOPE` follows if the token is for staff with that scope. API_URL names a custom domain of the API. Live mode
is refused: no real money moves. The order stays, at Stripe and in the tables, until it expires.
"""

import os
import shlex
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import requests

from onecharge.contract.money import as_money
from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report

CUSTOMER, STAFF = ("check",), ("check-staff", "--scope", "onecharge/refund")
PATIENCE_SECONDS = 120
"""How long the payment, and the refund, may take."""
_SECONDS = 35
"""Longer than an HTTP API waits for its function."""


def add_arguments(_: ArgumentParser) -> None:
    """It has none of its own."""


def run(stack: Stack, arguments: Namespace) -> Report:
    """Run the check; without --yes only say what it would do. Raises Problem: what is wrong."""
    if not stack.secret("StripeSecret").startswith(("sk_test_", "rk_test_")):
        raise Problem("StripeSecret has no key of Stripe's test mode: a check moves no real money")
    if not arguments.yes:
        what = f"order, pay and refund the first thing on the price list of {stack.api_url}"
        return Report({"would": what}, is_dry_run=True)
    own = shlex.join([sys.executable, "-m", "ops", "--stack", stack.name, "token"])
    check = Check(stack, os.environ.get("TOKEN_COMMAND") or own)
    check.webhook()
    order = check.placed()
    intent_id = check.paid(order)
    check.refunded(order, intent_id)
    money = as_money(order["amount"], order["currency"])
    return Report({"stack": stack.name, "order_id": order["order_id"], "is_well": f"{money} was paid and refunded"})


def wrong(what: str) -> Problem:
    return Problem(what, ExitStatus.FOUND)


@dataclass(frozen=True)
class Check:
    """The steps of a check. Methods raise Problem and stripe.StripeError."""

    stack: Stack
    token_command: str

    def webhook(self) -> None:
        url = f"{self.stack.api_url}/stripe/events"
        listed = self.stack.stripe.v1.webhook_endpoints.list({"limit": 100}).auto_paging_iter()
        if (url, "enabled") not in [(each.url, each.status) for each in listed]:
            raise wrong(f"Stripe has no enabled endpoint {url}: `{self.stack.command} webhook create --yes`")

    def placed(self) -> dict[str, Any]:
        """An order of the first thing on the price list."""
        price = self._request("GET", "/prices", CUSTOMER)["prices"][0]
        items = [{"sku": price["sku"], "quantity": 1}]
        wanted = {"currency": price["currency"], "amount": price["unit_amount"], "items": items}
        order: dict[str, Any]
        order = self._request("POST", "/orders", CUSTOMER, {**wanted, "payment_method": "pm_card_visa"}, status=202)
        return order

    def paid(self, order: dict[str, Any]) -> str:
        """Its PaymentIntent, which has the same amount."""
        path = f"/orders/{order['order_id']}"
        self._until("PAID", lambda: str(self._request("GET", path, CUSTOMER)["status"]))
        row = self.stack.payments.read(order["order_id"])
        intent = self.stack.stripe.v1.payment_intents.retrieve(str(row and row.payment_intent_id))
        seen = (intent.status, intent.amount_received, intent.currency, intent.livemode)
        if seen != ("succeeded", order["amount"], order["currency"].lower(), False):
            raise wrong(f"{intent.id} at Stripe is {seen}")
        return intent.id

    def refunded(self, order: dict[str, Any], intent_id: str) -> None:
        """In full, here and at Stripe."""
        path = f"/orders/{order['order_id']}"
        self._request("POST", f"{path}/refunds", STAFF, {}, status=202)
        self._until("SUCCEEDED", lambda: str(self._request("GET", path, CUSTOMER)["refunds"][0]["status"]))
        listed = self.stack.stripe.v1.refunds.list({"payment_intent": intent_id})
        if (amounts := [each.amount for each in listed.data]) != [order["amount"]]:
            raise wrong(f"Stripe has refunds of {amounts}")

    def _request(self, method: str, path: str, who: tuple[str, ...], body: Any = None, status: int = 200) -> Any:
        headers = {"Authorization": f"Bearer {self._token(*who)}", "Idempotency-Key": str(uuid4())}
        try:
            url = f"{self.stack.api_url}{path}"
            response = requests.request(method, url, json=body, headers=headers, timeout=_SECONDS)
        except requests.RequestException as error:
            raise wrong(f"{method} {path}: {error}") from None
        if response.status_code != status:
            raise wrong(f"{method} {path}: {response.status_code} {response.text[:300]}")
        return response.json()

    def _token(self, *words: str) -> str:
        """What the token command prints."""
        command = [*shlex.split(self.token_command), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603  # The caller's.
        if done.returncode or not done.stdout.strip():
            raise Problem(f"the token command failed: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

    def _until(self, wanted: str, see: Callable[[], str]) -> None:
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while (seen := see()) != wanted:
            if time.monotonic() > ends_at:
                raise wrong(f"it is {seen}, after {PATIENCE_SECONDS} s")
            time.sleep(1)
