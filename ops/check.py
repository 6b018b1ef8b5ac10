"""`check`: does this deployment work? A signed-in order in Stripe's test mode: paid, refunded, compared with Stripe.

    ops --stack NAME check --token-command "./token.sh" --yes

The token command prints an access token for the customer whose id is its last argument; with `--scope SCOPE` after it,
for somebody of the staff who has that scope. Where an issuer gives a client its own subject (client credentials), it
may ignore the customer. Live mode is refused: no real money moves.

Afterwards the order is paid and refunded, at Stripe and in the tables, where it stays until it expires: nothing deletes
what is in a ledger. Its customer is `check`.
"""

import os
import shlex
import subprocess
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import requests

from ops.connection import Stack
from ops.errors import ExitStatus, Problem
from ops.output import Report, Table

HELP = "place, pay and refund one order in test mode: does this deployment work?"

CUSTOMER = "check"
REFUND_SCOPE = "onecharge/refund"
AMOUNT = 500
"""In cents, euro."""
_HTTP_SECONDS = 35
"""Longer than an HTTP API waits for its function."""
_BODY = {
    "currency": "eur",
    "payment_method": "pm_card_visa",
    "items": [{"sku": "deployed-check", "quantity": 1, "unit_amount": AMOUNT}],
}


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
    """One run; a check that others need ends the run if it fails."""

    stack: Stack
    api_url: str
    token: Callable[..., str]
    seconds: int
    results: list[Result] = field(default_factory=list)
    order_id: str = ""
    payment_intent: Any = None

    def run(self) -> bool:
        """Whether all of it is well."""
        self._try("without a token the API answers 401", self._refused)
        is_paid = self._try("an order is placed", self._placed) and self._try("it is PAID", self._paid)
        afterwards: list[tuple[str, Callable[[], str]]] = [
            ("its webhook arrived", self._webhook),
            ("its refund SUCCEEDED", self._refunded),
        ]
        is_charged = is_paid and self._try("Stripe charged it once, in test mode", self._charged)
        for what, check in afterwards if is_charged else []:
            self._try(what, check)
        self._try("no alarm is on", self._alarms)
        self._try("every DLQ is empty", self._dlqs)
        return all(result.is_well for result in self.results)

    def _try(self, what: str, check: Callable[[], str]) -> bool:
        try:
            result = Result(what, True, check())
        except (NotWell, requests.RequestException, KeyError, ValueError) as reason:
            result = Result(what, False, str(reason) if isinstance(reason, NotWell) else repr(reason))
        self.results.append(result)
        return result.is_well

    # ------------------------------------------------------------ the checks, in order

    def _refused(self) -> str:
        response = requests.get(f"{self.api_url}/orders", timeout=_HTTP_SECONDS)
        if response.status_code != 401:
            raise NotWell(f"GET /orders without a token is answered with {response.status_code}: the API is open")
        return "GET /orders: 401"

    def _placed(self) -> str:
        answer = self._post("orders", _BODY, CUSTOMER)
        self.order_id = str(answer["order_id"])
        return self.order_id

    def _paid(self) -> str:
        def seen() -> str:
            return str(self._get(f"orders/{self.order_id}")["status"])

        waited = self._until(seen, lambda status: status == "PAID", lambda status: f"it is {status}")
        return f"after {waited:.0f} s"

    def _charged(self) -> str:
        table, key = self.stack.resource("PaymentsTable"), {"order_id": {"S": self.order_id}}
        row = self.stack.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item", {})
        if "payment_intent_id" not in row:
            raise NotWell("the Payments table has no PaymentIntent of it")
        intent = self.stack.stripe.v1.payment_intents.retrieve(row["payment_intent_id"]["S"])
        self.payment_intent = intent
        seen = (intent.status, intent.amount_received, intent.currency, intent.livemode)
        if seen != ("succeeded", AMOUNT, "eur", False):
            raise NotWell(f"{intent.id} at Stripe is {seen}")
        return f"{intent.id}: {AMOUNT / 100:.2f} EUR"

    def _webhook(self) -> str:
        table = self.stack.resource("StripeEventsTable")

        def seen() -> bool:
            listed = self.stack.stripe.v1.events.list({"type": "payment_intent.succeeded", "limit": 20})
            ours = [each.id for each in listed.data if each.data.object["id"] == self.payment_intent.id]
            keys = [{"event_id": {"S": event_id}} for event_id in ours]
            return any("Item" in self.stack.dynamodb.get_item(TableName=table, Key=key) for key in keys)

        no_event = "Stripe's event was not received: is the endpoint there, with its signing secret?"
        return f"after {self._until(seen, bool, lambda _: no_event):.0f} s"

    def _refunded(self) -> str:
        answer = self._post(f"orders/{self.order_id}/refunds", {}, "check-staff", REFUND_SCOPE)
        key = {"order_id": {"S": self.order_id}, "refund_id": {"S": str(answer["refund_id"])}}
        table = self.stack.resource("OrderRefundsTable")

        def seen() -> str:
            item = self.stack.dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
            return str(item["status"]["S"])

        waited = self._until(seen, lambda status: status == "SUCCEEDED", lambda status: f"it is {status}")
        listed = self.stack.stripe.v1.refunds.list({"payment_intent": self.payment_intent.id})
        if (amounts := [each.amount for each in listed.data]) != [AMOUNT]:
            raise NotWell(f"Stripe has refunds of {amounts}")
        return f"after {waited:.0f} s"

    def _alarms(self) -> str:
        pages = self.stack.client("cloudwatch").get_paginator("describe_alarms")
        names = [
            alarm["AlarmName"]
            for page in pages.paginate(AlarmNamePrefix=f"{self.stack.name}-", StateValue="ALARM")
            for alarm in [*page.get("MetricAlarms", []), *page.get("CompositeAlarms", [])]
        ]
        if names:
            raise NotWell(", ".join(sorted(names)))
        return "docs/runbook.md has an entry for each"

    def _dlqs(self) -> str:
        held = []
        dlqs = [name for name in self.stack.logical_ids() if name.endswith("Dlq")]
        for name in dlqs:
            attributes = self.stack.sqs.get_queue_attributes(
                QueueUrl=self.stack.resource(name), AttributeNames=["ApproximateNumberOfMessages"]
            )["Attributes"]
            if int(attributes["ApproximateNumberOfMessages"]):
                held.append(f"{name}: {attributes['ApproximateNumberOfMessages']}")
        if held:
            raise NotWell(", ".join(held))
        return ", ".join(dlqs)

    # ------------------------------------------------------------ how

    def _post(self, path: str, body: dict[str, Any], customer: str, scope: str = "") -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token(customer, scope)}", "Idempotency-Key": str(uuid4())}
        response = requests.post(f"{self.api_url}/{path}", json=body, headers=headers, timeout=_HTTP_SECONDS)
        return self._json(response, 202)

    def _get(self, path: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token(CUSTOMER)}"}
        return self._json(requests.get(f"{self.api_url}/{path}", headers=headers, timeout=_HTTP_SECONDS), 200)

    @staticmethod
    def _json(response: requests.Response, status: int) -> dict[str, Any]:
        if response.status_code != status:
            request = response.request
            raise NotWell(f"{request.method} {request.path_url}: {response.status_code} {response.text[:300]}")
        return dict(response.json())

    def _until[Seen](
        self, see: Callable[[], Seen], wanted: Callable[[Seen], bool], otherwise: Callable[[Seen], str]
    ) -> float:
        """How many seconds it took. Raises NotWell when the time is up."""
        began = time.monotonic()
        while not wanted(seen := see()):
            if time.monotonic() - began > self.seconds:
                raise NotWell(f"{otherwise(seen)}, after {self.seconds} s")
            time.sleep(1)
        return time.monotonic() - began


def add_arguments(parser: ArgumentParser) -> None:
    """What the stack itself does not say."""
    parser.add_argument("--token-command", metavar="CMD", help="prints an access token (default: TOKEN_COMMAND)")
    parser.add_argument(
        "--api-url", metavar="URL", help="a custom domain of the API (default: API_URL, the output ApiUrl)"
    )
    parser.add_argument("--seconds", type=int, default=120, help="how long each step may take (default: 120)")


def run(stack: Stack, arguments: Namespace) -> Report:
    """Run the checks. Without --yes only say what would be done."""
    refuse_live_mode(stack)
    command = arguments.token_command or os.environ.get("TOKEN_COMMAND")
    if not command:
        raise Problem("--token-command is missing: a command that prints an access token (docs/guides/deploy.md)")
    url = (arguments.api_url or os.environ.get("API_URL") or api_url(stack)).rstrip("/")
    if not arguments.yes:
        line = f"would place, pay and refund an order of {AMOUNT / 100:.2f} EUR at {url}, in test mode: add --yes"
        return Report({"would": line}, [line], ExitStatus.FOUND)
    check = Check(stack, url, lambda *who: token_of(command, *who), arguments.seconds)
    is_well = check.run()
    rows = [("✓" if result.is_well else "✗", result.what, result.detail) for result in check.results]
    styles = [None if result.is_well else "red" for result in check.results]
    ended = [f"The order {check.order_id} stays where it is: a ledger is not cleaned up."] if check.order_id else []
    document = {"is_well": is_well, "order_id": check.order_id, "checks": [vars(each) for each in check.results]}
    parts: list[Table | str] = [Table(f"stack {stack.name}", ("", "check", "seen"), rows, styles), *ended]
    return Report(document, parts, ExitStatus.OK if is_well else ExitStatus.FOUND)


def refuse_live_mode(stack: Stack) -> None:
    """Raises Problem if the functions' Stripe key is not one of test mode, or cannot be read."""
    if not stack.secret(stack.parameter("StripeSecretArn")).startswith(("sk_test_", "rk_test_")):
        raise Problem("StripeSecretArn has no key of Stripe's test mode: a check moves no real money")


def api_url(stack: Stack) -> str:
    """The stack's output. Raises Problem."""
    [described] = stack.client("cloudformation").describe_stacks(StackName=stack.name)["Stacks"]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in described.get("Outputs", [])}
    if "ApiUrl" not in outputs:
        raise Problem(f"stack {stack.name} has no output ApiUrl: was it deployed from this template?")
    return str(outputs["ApiUrl"])


def token_of(command: str, customer: str, scope: str = "") -> str:
    """What the token command prints. Raises Problem."""
    words = [*shlex.split(command), customer, *(["--scope", scope] if scope else [])]
    done = subprocess.run(  # noqa: S603  # Whoever runs this gave the command.
        words, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode or not done.stdout.strip():
        raise Problem(f"the token command failed: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()
