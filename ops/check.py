"""Does this deployment work? A signed-in order in Stripe's test mode is paid, refunded, and compared with Stripe.

TOKEN_COMMAND prints an access token; without one it is `ops token`. Its last argument is the id of a customer;
`--scope SCOPE` follows if the token is for staff with that scope. Where an issuer gives a client its own subject
(client credentials), it may ignore the customer. API_URL names a custom domain of the API. Live mode is refused: no
real money moves.

Afterwards the order is paid and refunded, at Stripe and in the tables, where it stays until it expires: a ledger is not
cleaned up. Its customer is `check`.
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
from pathlib import Path
from typing import Any
from uuid import uuid4

import requests

from onecharge.contract.money import as_money
from onecharge.payments.stripe_events import RECEIVED_STEP_SECONDS, Received
from onecharge.runtime.dynamodb import from_item
from ops.connection import Stack
from ops.dlq_letters import DLQS
from ops.errors import ExitStatus, Problem
from ops.facts import unread
from ops.output import Report, Table

CUSTOMER = "check"
REFUND_SCOPE = "onecharge/refund"
_OPENAPI = Path(__file__).resolve().parents[1] / "docs/openapi.json"
NOT_RUN_SECONDS = 3900
"""Until each schedule of a new stack has run once, its alarm …NotRun is on: an hour, and its alarm's period."""
_HTTP_SECONDS = 35
"""Longer than an HTTP API waits for its function."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=120, help="how long each step may take (default: 120)")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Run the checks; without --yes only say what they would do. Raises Problem."""
    refuse_live_mode(stack)
    own = shlex.join([sys.executable, "-m", "ops", "--stack", stack.name, "token"])
    if not arguments.yes:
        line = f"would order, pay and refund the first thing on the price list of {stack.api_url}: add --yes"
        return Report({"would": line}, [line], ExitStatus.FOUND)
    check = Check(stack, stack.api_url, os.environ.get("TOKEN_COMMAND") or own, arguments.seconds)
    is_well = check.run()
    rows = [("✓" if result.is_well else "✗", result.what, result.detail) for result in check.results]
    styles = [None if result.is_well else "red" for result in check.results]
    document = {"is_well": is_well, "order_id": check.order_id, "checks": [vars(each) for each in check.results]}
    table = Table(f"stack {stack.name}", ("", "check", "seen"), rows, styles)
    return Report(document, [table], ExitStatus.OK if is_well else ExitStatus.FOUND)


def routes_with_token() -> Iterator[tuple[str, str]]:
    """Method and path of each route that needs an access token, with the id of no order."""
    for path, methods in json.loads(_OPENAPI.read_text())["paths"].items():
        for method, operation in methods.items():
            if operation["security"]:
                yield method.upper(), path.replace("{order_id}", "ord_none")


def refuse_live_mode(stack: Stack) -> None:
    """Raises Problem if the functions' Stripe key is not one of test mode, or cannot be read."""
    if not stack.own_secret("StripeSecret").startswith(("sk_test_", "rk_test_")):
        raise Problem("StripeSecret has no key of Stripe's test mode: a check moves no real money")


@dataclass(frozen=True)
class Result:
    """One line of the checklist."""

    what: str
    is_well: bool
    detail: str


class NotWell(Exception):
    """A check failed; the text says what was seen."""


@dataclass
class Check:
    """One run."""

    stack: Stack
    api_url: str
    token_command: str
    seconds: int
    results: list[Result] = field(default_factory=list)
    order_id: str = ""
    amount_minor: int = 0
    currency: str = ""
    payment_intent: Any = None

    def run(self) -> bool:
        """Whether all of it is well."""
        self._try("without a token the API answers 401", self._refused)
        to_charge = [
            ("an order is placed", self._placed),
            ("it is PAID", self._paid),
            ("Stripe charged it once, in test mode", self._charged),
        ]
        if all(self._try(*each) for each in to_charge):
            self._try("its webhook arrived", self._webhook)
            self._try("its refund SUCCEEDED", self._refunded)
        self._try("no alarm is on", self._alarms)
        self._try("every DLQ is empty", self._dlqs)
        self._try("every stream and queue is read", self._mappings)
        self._try("a customer's token is not the staff's", self._scopes)
        return all(result.is_well for result in self.results)

    def _try(self, what: str, check: Callable[[], str]) -> bool:
        try:
            result = Result(what, True, check())
        except NotWell as reason:
            result = Result(what, False, str(reason))
        except (requests.RequestException, LookupError, ValueError) as error:
            result = Result(what, False, repr(error))
        self.results.append(result)
        return result.is_well

    # ------------------------------------------------------------ the checks, in order

    def _refused(self) -> str:
        routes = list(routes_with_token())
        for method, path in routes:
            response = requests.request(method, f"{self.api_url}{path}", timeout=_HTTP_SECONDS)
            if response.status_code != 401:
                raise NotWell(f"{method} {path} without a token is answered with {response.status_code}, not 401")
        return f"each of {len(routes)} routes: 401"

    def _placed(self) -> str:
        token = self._token(CUSTOMER)
        price = self._get("prices", token)["prices"][0]
        body = {
            "currency": price["currency"],
            "payment_method": "pm_card_visa",
            "items": [{"sku": price["sku"], "quantity": 1}],
            "amount": price["unit_amount"],
        }
        placed = self._post("orders", body, token)
        self.order_id, self.amount_minor, self.currency = placed["order_id"], placed["amount"], placed["currency"]
        return f"{self.order_id}: {as_money(self.amount_minor, self.currency)}"

    def _paid(self) -> str:
        def status() -> str:
            return str(self._get(f"orders/{self.order_id}", self._token(CUSTOMER))["status"])

        return self._until("PAID", status)

    def _charged(self) -> str:
        row = self.stack.item("PaymentsTable", order_id=self.order_id) or {}
        intent = self.stack.stripe.v1.payment_intents.retrieve(row["payment_intent_id"]["S"])
        self.payment_intent = intent
        seen = (intent.status, intent.amount_received, intent.currency, intent.livemode)
        if seen != ("succeeded", self.amount_minor, self.currency.lower(), False):
            raise NotWell(f"{intent.id} at Stripe is {seen}")
        return f"{intent.id}: {as_money(intent.amount_received, intent.currency)}"

    def _webhook(self) -> str:
        def seen() -> str:
            listed = self.stack.stripe.v1.events.list({"type": "payment_intent.succeeded", "limit": 20})
            ours = [each.created for each in listed.data if each.data.object["id"] == self.payment_intent.id]
            received = from_item(self.stack.item("PaymentsStateTable", name=Received.job) or {})
            newest_at = received.get("newest_event_at", 0)
            is_received = any(created <= newest_at + RECEIVED_STEP_SECONDS for created in ours)
            return "received" if is_received else "not received: is the endpoint there, with its signing secret?"

        return self._until("received", seen)

    def _refunded(self) -> str:
        token = self._token("check-staff", "--scope", REFUND_SCOPE)
        refund_id = str(self._post(f"orders/{self.order_id}/refunds", {}, token)["refund_id"])

        def status() -> str:
            item = self.stack.item("OrderRefundsTable", order_id=self.order_id, refund_id=refund_id) or {}
            return str(item["status"]["S"])

        waited = self._until("SUCCEEDED", status)
        listed = self.stack.stripe.v1.refunds.list({"payment_intent": self.payment_intent.id})
        if (amounts := [each.amount for each in listed.data]) != [self.amount_minor]:
            raise NotWell(f"Stripe has refunds of {amounts}")
        return waited

    def _alarms(self) -> str:
        pages = self.stack.client("cloudwatch").get_paginator("describe_alarms")
        names = [
            alarm["AlarmName"]
            for page in pages.paginate(AlarmNamePrefix=f"{self.stack.name}-", StateValue="ALARM")
            for alarm in [*page.get("MetricAlarms", []), *page.get("CompositeAlarms", [])]
            # Another stack's name may begin with this one and a hyphen: a logical id has no hyphen.
            if re.fullmatch(r"\w+", alarm["AlarmName"].removeprefix(f"{self.stack.name}-"))
        ]
        is_new = time.time() - self.stack.created_at < NOT_RUN_SECONDS
        if wrong := [name for name in names if not (is_new and name.endswith("NotRun"))]:
            raise NotWell(", ".join(sorted(wrong)))
        return "but those of schedules that have not run yet" if names else "docs/runbook.md has an entry for each"

    def _dlqs(self) -> str:
        counts = {dlq: self._messages(dlq) for dlq in DLQS}
        if any(counts.values()):
            raise NotWell(", ".join(f"{dlq}: {count}" for dlq, count in counts.items() if count))
        return ", ".join(DLQS)

    def _mappings(self) -> str:
        if found := [f"{each.source}: mapping {each.uuid} is disabled" for each in unread(self.stack)]:
            raise NotWell(", ".join(found))
        return "no event source mapping is disabled"

    def _scopes(self) -> str:
        """A machine's tokens have one subject for both, and are no customer's."""
        customer, staff = _claims(self._token(CUSTOMER)), _claims(self._token("check-staff", "--scope", REFUND_SCOPE))
        has_scope = REFUND_SCOPE in f"{customer.get('scope')} {customer.get('scp')}"
        if has_scope and customer["sub"] != staff["sub"]:
            raise NotWell(f"it has the scope {REFUND_SCOPE}: docs/guides/deploy.md says how the issuer refuses that")
        return "a machine's: test it with a customer's (TOKEN_COMMAND)" if has_scope else f"no {REFUND_SCOPE}"

    # ------------------------------------------------------------ how

    def _messages(self, dlq: str) -> int:
        url = self.stack.resource(dlq)
        answer = self.stack.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        return int(answer["Attributes"]["ApproximateNumberOfMessages"])

    def _get(self, path: str, token: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        return _json(requests.get(f"{self.api_url}/{path}", headers=headers, timeout=_HTTP_SECONDS), 200)

    def _post(self, path: str, body: dict[str, Any], token: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": str(uuid4())}
        return _json(requests.post(f"{self.api_url}/{path}", json=body, headers=headers, timeout=_HTTP_SECONDS), 202)

    def _token(self, *words: str) -> str:
        """What the token command prints. Raises Problem."""
        done = subprocess.run(  # noqa: S603  # The caller gave the command.
            [*shlex.split(self.token_command), *words], capture_output=True, text=True, check=False, timeout=60
        )
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


def _claims(token: str) -> dict[str, Any]:
    """What the token says; the API verifies it. Raises ValueError or IndexError if it is no JWT."""
    return dict(json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==")))


def _json(response: requests.Response, status: int) -> dict[str, Any]:
    if response.status_code != status:
        request = response.request
        raise NotWell(f"{request.method} {request.path_url}: {response.status_code} {response.text[:300]}")
    return dict(response.json())
