"""Does this deployment work? A signed-in order in Stripe's test mode is paid, refunded, and compared with Stripe.

TOKEN_COMMAND prints an access token; without one it is `ops token`. Its last argument is the id of a customer;
`--scope SCOPE` follows if the token is for staff with that scope. Where an issuer gives a client its own subject
(client credentials), it may ignore the customer. API_URL names a custom domain of the API. Live mode is refused: no
real money moves.

The order stays, at Stripe and in the tables, until it expires. Its customer is `check`.
"""

import base64
import json
import os
import re
import shlex
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import requests

from onecharge.contract.money import as_money
from onecharge.payments.stripe_events import RECEIVED_STEP_SECONDS, Received
from onecharge.runtime.dynamodb import from_item
from ops.connection import Stack
from ops.dlq import DLQS
from ops.errors import Problem
from ops.output import Report

CUSTOMER, STAFF = ("check",), ("check-staff", "--scope", "onecharge/refund")
NOT_RUN_SECONDS = 3900
"""Until each schedule of a new stack has run once, its alarm …NotRun is on: an hour, and its alarm's period."""
_SECONDS = 35
"""Longer than an HTTP API waits for its function."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=120, help="how long each step may take (default: 120)")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Run the checks; without --yes only say what they would do. Raises Problem."""
    if not stack.secret("StripeSecret").startswith(("sk_test_", "rk_test_")):
        raise Problem("StripeSecret has no key of Stripe's test mode: a check moves no real money")
    if not arguments.yes:
        what = f"order, pay and refund the first thing on the price list of {stack.api_url}"
        return Report({"would": what}, is_dry_run=True)
    own = shlex.join([sys.executable, "-m", "ops", "--stack", stack.name, "token"])
    check = Check(stack, stack.api_url, os.environ.get("TOKEN_COMMAND") or own, arguments.seconds)
    results = list(check.results())
    document = {"stack": stack.name, "order_id": check.order.get("order_id"), "checks": results}
    return Report(document, is_wrong=not all(each["is_well"] for each in results))


class NotWell(Exception):
    """A check failed; the text says what was seen."""


@dataclass
class Check:
    """One run."""

    stack: Stack
    api_url: str
    token_command: str
    seconds: int
    order: dict[str, Any] = field(default_factory=dict)

    def results(self) -> Iterator[dict[str, Any]]:
        """Each check; its name is its docstring."""
        steps = (self.placed, self.paid, self.refunded, self.webhook)
        for check in (*steps, self.refused, self.alarms, self.mappings, self.scopes):
            try:
                is_well, detail = True, check()
            except NotWell as reason:
                is_well, detail = False, str(reason)
            except (requests.RequestException, LookupError, ValueError) as error:
                is_well, detail = False, repr(error)  # One that follows a step that failed has nothing to look at.
            yield {"is_well": is_well, "what": check.__doc__, "detail": detail}

    def placed(self) -> str:
        """an order is placed"""
        price = self._request("GET", "/prices", CUSTOMER)["prices"][0]
        items = [{"sku": price["sku"], "quantity": 1}]
        body = {"currency": price["currency"], "amount": price["unit_amount"], "items": items}
        self.order = self._request("POST", "/orders", CUSTOMER, {**body, "payment_method": "pm_card_visa"}, status=202)
        return f"{self.order['order_id']}: {as_money(self.order['amount'], self.order['currency'])}"

    def paid(self) -> str:
        """it is PAID"""
        path = f"/orders/{self.order['order_id']}"
        waited = self._until("PAID", lambda: str(self._request("GET", path, CUSTOMER)["status"]))
        row = self.stack.item("PaymentsTable", order_id=self.order["order_id"]) or {}
        self.order["intent"] = row["payment_intent_id"]["S"]
        intent = self.stack.stripe.v1.payment_intents.retrieve(self.order["intent"])
        seen = (intent.status, intent.amount_received, intent.currency, intent.livemode)
        if seen != ("succeeded", self.order["amount"], self.order["currency"].lower(), False):
            raise NotWell(f"{intent.id} at Stripe is {seen}")
        return waited

    def refunded(self) -> str:
        """its refund SUCCEEDED"""
        order_id = self.order["order_id"]
        made = self._request("POST", f"/orders/{order_id}/refunds", STAFF, {}, status=202)
        key = {"order_id": order_id, "refund_id": str(made["refund_id"])}
        waited = self._until("SUCCEEDED", lambda: (self.stack.item("OrderRefundsTable", **key) or {})["status"]["S"])
        listed = self.stack.stripe.v1.refunds.list({"payment_intent": self.order["intent"]})
        if (amounts := [each.amount for each in listed.data]) != [self.order["amount"]]:
            raise NotWell(f"Stripe has refunds of {amounts}")
        return waited

    def webhook(self) -> str:
        """its webhook arrived"""

        def seen() -> str:
            listed = self.stack.stripe.v1.events.list({"type": "payment_intent.succeeded", "limit": 20})
            ours = [each.created for each in listed.data if each.data.object["id"] == self.order["intent"]]
            newest = from_item(self.stack.item("PaymentsStateTable", name=Received.job) or {}).get("newest_event_at", 0)
            is_received = any(created <= newest + RECEIVED_STEP_SECONDS for created in ours)
            return "received" if is_received else "not received: is the endpoint there, with its signing secret?"

        return self._until("received", seen)

    def refused(self) -> str:
        """without a token the API answers 401"""
        if (status := requests.post(f"{self.api_url}/orders", json={}, timeout=_SECONDS).status_code) != 401:
            raise NotWell(f"POST /orders without a token is answered with {status}")
        return "401"

    def alarms(self) -> str:
        """no alarm is on"""
        prefix, names = f"{self.stack.name}-", list[str]()
        pages = self.stack.client("cloudwatch").get_paginator("describe_alarms")
        for page in pages.paginate(AlarmNamePrefix=prefix, StateValue="ALARM"):
            names += [each["AlarmName"].removeprefix(prefix) for each in page["MetricAlarms"]]
        is_new = time.time() - self.stack.described["CreationTime"].timestamp() < NOT_RUN_SECONDS
        # Another stack's name may begin with this one and a hyphen: a logical id has no hyphen.
        if wrong := sorted(name for name in names if "-" not in name and not (is_new and name.endswith("NotRun"))):
            raise NotWell(", ".join(wrong))
        return "none, but of schedules that have not run yet" if is_new else "none"

    def mappings(self) -> str:
        """every stream and queue is read"""
        # A stream whose mapping is disabled has no reader: its orders are stored, and nothing publishes them.
        sources = ("OrdersTable", "OrderRefundsTable", "PaymentsTable", *filter(None, DLQS.values()))
        # The last part of a queue's URL is its name, as of its ARN; a stream's ARN has the table's name in it.
        names = {self.stack.resource(each).split("/")[-1]: each for each in sources}
        pages = self.stack.client("lambda").get_paginator("list_event_source_mappings").paginate()
        for mapping in (each for page in pages for each in page["EventSourceMappings"]):
            parts = re.split(r"[:/]", mapping.get("EventSourceArn", ""))
            if mapping.get("State") in ("Disabled", "Disabling") and (found := names.keys() & set(parts)):
                raise NotWell(f"{names[found.pop()]}: mapping {mapping['UUID']} is disabled")
        return "no event source mapping is disabled"

    def scopes(self) -> str:
        """a customer's token is not the staff's"""
        # A machine's tokens have one subject for both, and are no customer's.
        payloads = [self._token(*words).split(".")[1] for words in (CUSTOMER, STAFF)]
        customer, staff = (json.loads(base64.urlsafe_b64decode(f"{each}==")) for each in payloads)
        has_scope = STAFF[-1] in f"{customer.get('scope')} {customer.get('scp')}"
        if has_scope and customer["sub"] != staff["sub"]:
            raise NotWell(f"it has the scope {STAFF[-1]}: docs/guides/deploy.md says how the issuer refuses that")
        return "a machine's: test it with a customer's (TOKEN_COMMAND)" if has_scope else f"no {STAFF[-1]}"

    def _request(self, method: str, path: str, who: tuple[str, ...], body: Any = None, status: int = 200) -> Any:
        headers = {"Authorization": f"Bearer {self._token(*who)}", "Idempotency-Key": str(uuid4())}
        response = requests.request(method, f"{self.api_url}{path}", json=body, headers=headers, timeout=_SECONDS)
        if response.status_code != status:
            raise NotWell(f"{method} {path}: {response.status_code} {response.text[:300]}")
        return response.json()

    def _token(self, *words: str) -> str:
        """What the token command prints. Raises Problem."""
        command = [*shlex.split(self.token_command), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603  # The caller's.
        if done.returncode or not done.stdout.strip():
            raise Problem(f"the token command failed: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()

    def _until(self, wanted: str, see: Callable[[], str]) -> str:
        """How long it took. Raises NotWell when the time is up."""
        began = time.monotonic()
        while (seen := see()) != wanted:
            if time.monotonic() - began > self.seconds:
                raise NotWell(f"it is {seen}, after {self.seconds} s")
            time.sleep(1)
        return f"after {time.monotonic() - began:.0f} s"
