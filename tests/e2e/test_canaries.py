"""Secrets, card data and personal data are fed in on every path, errors included, and found in no place that keeps any.

Searched are the logs of all functions, the emulator's own log, metrics, every queue and DLQ, every table, every bucket,
and each response.
"""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import requests

from local.observe import log_events, wait_until_idle
from local.stack import Stack
from stripe_standin.faults import Fault
from stripe_standin.webhook_endpoints import signature
from tests.support.canaries import CARD, CLIENT_SECRET, EMAIL, OPAQUE, REDACTED, TOKEN, Canary, found_in
from tests.support.deployed_shop import (
    CURRENCY,
    PATIENCE_SECONDS,
    PRICE,
    SKU,
    THREE_D_SECURE_CARD,
    DeployedShop,
    eventually,
    forget_dead_letters,
)
from tests.support.stacks import own_stack

pytestmark = own_stack

VALUES = [CARD.value, " | ".join(each.value for each in (OPAQUE, CLIENT_SECRET, TOKEN, EMAIL))]
EVERYTHING = " | ".join(VALUES)
STORED = [
    Canary("a payment method's id", "pm_canary" + "Zx81qWv7Tt"),
    Canary("a customer's id", "cus_canary" + "Hq27dRk5Yb"),
    Canary("an idempotency key", "key-canary-" + "Lw93nFs6Pj"),
]
"""Ids, and no secrets: the tables and the events have them, the logs do not."""


class Feeder:
    """Sends the canaries in, on each path; keeps what was answered."""

    def __init__(self, shop: DeployedShop) -> None:
        self.shop, self.stack = shop, shop.stack
        self.answered: list[str] = []
        self.dead: list[str] = []
        """The bodies of poison messages: a DLQ keeps them as they are, and nothing else does."""

    # ------------------------------------------------------------ HTTP

    def over_http(self) -> None:
        """In each part of a request, to each route, with a token and without one."""
        order = {"currency": CURRENCY, "payment_method": "pm_card_visa", "items": [_line(SKU)]}
        order_id = str(self.shop.order().json()["order_id"])
        paths = ["", f"/{order_id}", f"/{order_id}/payments", f"/{order_id}/cancel", f"/{order_id}/refunds"]
        for value in VALUES:
            malformed, huge = f'{{"malformed": "{value}', {"note": value + "x" * 300_000}
            bodies = [{**order, value: value}, {"payment_method": value, "amount": value}, value, malformed, huge]
            for path in paths:
                for body in bodies:
                    self._send("POST", path, data=body if isinstance(body, str) else json.dumps(body))
            for changes in ({"items": [_line(value)], "currency": value}, {"payment_method": value}):
                self._send("POST", "", data=json.dumps({**order, **changes}))
            for path in (f"/{quote(value, safe='')}", f"/{order_id}/{quote(value, safe='')}"):
                self._send("GET", path)
                self._send("POST", path, data="{}")
            self._send("GET", f"?limit={quote(value)}&cursor={base64.urlsafe_b64encode(value.encode()).decode()}")
            self._send("POST", f"?card={quote(value)}", data=json.dumps(order))
            headers = {"Idempotency-Key": value.replace(" ", "-"), "X-Note": value, "Authorization": f"Bearer {value}"}
            for name in headers:
                self._send("POST", "", data=json.dumps(order), headers={name: headers[name]})
                self._send("GET", f"/{order_id}", headers={name: headers[name]})

    def _send(self, method: str, path: str, *, data: str | None = None, headers: dict[str, str] | None = None) -> None:
        response = self.shop.http.request(
            method,
            f"{self.stack.api_url}/orders{path}",
            data=data.encode() if data else None,
            headers={"Idempotency-Key": str(uuid4()), **(headers or {})},
            timeout=PATIENCE_SECONDS,
        )
        # The path of a new order is in no response; what is answered holds nothing of the request.
        self.answered.append(f"{response.headers} {response.text}")

    # ------------------------------------------------------------ Stripe

    def in_a_refusal(self) -> None:
        """Stripe repeats what it was sent, in its message: a row keeps that, redacted."""
        message = f"Invalid: {' | '.join(each.value for each in REDACTED)}"
        error = {"type": "invalid_request_error", "message": message}
        self.shop.stripe.add_fault(Fault.RESPONSE, {"amount": str(3 * PRICE)}, times=None, status=400, error=error)
        order_id = str(self.shop.order(items=[{"sku": SKU, "quantity": 3}]).json()["order_id"])
        assert eventually(lambda: self._is_refused(order_id), bool)
        self.shop.stripe.clear_faults()
        self.answered.append(self.shop.get(order_id).text)

    def _is_refused(self, order_id: str) -> bool:
        """Whether its row keeps the refusal."""
        key = {"order_id": {"S": order_id}}
        answer = self.stack.aws.client("dynamodb").get_item(TableName=self.stack.charges_table, Key=key)
        return "refused_at" in answer.get("Item", {})

    def in_an_event(self) -> None:
        """Forged, and signed: an event that holds what Stripe knows of a customer."""
        intent = {
            "id": "pi_canary",
            "object": "payment_intent",
            "amount": 2500,
            "currency": "eur",
            "status": "succeeded",
            "client_secret": CLIENT_SECRET.value,
            "receipt_email": EMAIL.value,
            "description": EVERYTHING,
            "shipping": {"name": OPAQUE.value, "address": {"line1": OPAQUE.value}},
            "metadata": {"note": EVERYTHING},
            "last_payment_error": {
                "message": EVERYTHING,
                "payment_method": {"billing_details": {"email": EMAIL.value}},
            },
        }
        ours = {
            **intent,
            "metadata": {"order_id": "ord_" + "c" * 32, "customer_id": "cus_x", "placed_at": "1793523600"},
        }
        for made in (intent, ours, {"id": "pi_canary", "note": EVERYTHING}):
            event = {
                "id": f"evt_{uuid4()}",
                "object": "event",
                "type": "payment_intent.succeeded",
                "created": 1793523605,
            }
            body = json.dumps({**event, "data": {"object": made}})
            valid = signature(body, self.webhook_secret, int(time.time()))
            for header in (valid, f"t=1,v1={EVERYTHING}", EVERYTHING):
                response = requests.post(
                    f"{self.stack.api_url}/stripe/events",
                    data=body,
                    headers={"Stripe-Signature": header},
                    timeout=PATIENCE_SECONDS,
                )
                self.answered.append(f"{response.headers} {response.text}")

    @property
    def webhook_secret(self) -> str:
        secrets = self.stack.aws.client("secretsmanager")
        return str(secrets.get_secret_value(SecretId=self.stack.stripe_webhook_secret_id)["SecretString"])

    # ------------------------------------------------------------ behind HTTP

    def into_queues(self) -> None:
        """Poison in each queue: no JSON, no event, an event with a canary in each field."""
        event = {
            "specversion": "1.0",
            "id": EVERYTHING,
            "source": "/onecharge/orders",
            "type": "onecharge.order.placed",
            "subject": EVERYTHING,
            "time": EVERYTHING,
            "correlationid": EVERYTHING,
            "data": {"order_id": EVERYTHING, "attempt": EVERYTHING, EVERYTHING: EVERYTHING},
        }
        sqs = self.stack.aws.client("sqs")
        for url in self.queues:
            for body in (EVERYTHING, json.dumps({"specversion": EVERYTHING}), json.dumps(event)):
                self.dead.append(body)
                sqs.send_message(QueueUrl=url, MessageBody=body)

    @property
    def queues(self) -> list[str]:
        return [
            self.stack.payments_queue_url,
            self.stack.order_updates_queue_url,
            self.stack.refunds_queue_url,
        ]

    def into_functions(self) -> None:
        """What a stream that is broken, or a caller of ours that errs, would send: each function, directly."""
        lambda_ = self.stack.aws.client("lambda")
        image = {name: {"S": EVERYTHING} for name in ("status", "state", "customer_id", "correlation_id", "placed_at")}
        keys = {"order_id": {"S": "ord_" + "d" * 32}}
        for function in lambda_.list_functions()["Functions"]:
            record = {
                "eventName": "MODIFY",
                "eventSourceARN": f"arn:aws:dynamodb:us-east-1:000000000000:table/{self.stack.orders_table}/stream/x",
                "dynamodb": {"Keys": keys, "NewImage": {**keys, **image}, "SequenceNumber": "1"},
            }
            event = json.dumps({"Records": [record], "question": EVERYTHING, "body": EVERYTHING}).encode()
            answer = lambda_.invoke(FunctionName=function["FunctionName"], Payload=event)
            self.answered.append(answer["Payload"].read().decode())


def _line(sku: str) -> dict[str, Any]:
    return {"sku": sku[:64], "quantity": 1}


class Places:
    """Everything that the stack keeps or writes."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.aws = stack, stack.aws

    def all(self, *, but_messages: list[str]) -> Iterator[tuple[str, str]]:
        """Each place with its text; without the bodies that a DLQ may keep."""
        yield from self.logs()
        yield "the emulator's log", Path(self.stack.aws_log).read_text(errors="replace")
        yield from self.messages(but_messages)
        yield from self.tables()
        yield from self.buckets()
        yield "metrics", json.dumps(self.aws.client("cloudwatch").list_metrics()["Metrics"])

    def logs(self) -> Iterator[tuple[str, str]]:
        logs = self.aws.client("logs")
        for group in (each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]):
            yield f"log {group}", "\n".join(event["message"] for event in log_events(logs, group))

    def messages(self, but: list[str]) -> Iterator[tuple[str, str]]:
        """Of every queue; they stay there."""
        sqs = self.aws.client("sqs")
        for url in sqs.list_queues().get("QueueUrls", []):
            held = []
            while batch := sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30, MessageAttributeNames=["All"]
            ).get("Messages"):
                held += batch
            for message in held:
                sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
            texts = [json.dumps(m.get("MessageAttributes", {})) + ("" if m["Body"] in but else m["Body"]) for m in held]
            yield f"queue {url.rpartition('/')[2]}", "\n".join(texts)

    def tables(self) -> Iterator[tuple[str, str]]:
        dynamodb = self.aws.client("dynamodb")
        for table in dynamodb.list_tables()["TableNames"]:
            pages = dynamodb.get_paginator("scan").paginate(TableName=table)
            yield f"table {table}", json.dumps([item for page in pages for item in page["Items"]], default=str)

    def buckets(self) -> Iterator[tuple[str, str]]:
        """Without the packages that `sam deploy` has uploaded."""
        s3 = self.aws.client("s3")
        for bucket in (each["Name"] for each in s3.list_buckets()["Buckets"]):
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                for key in (each["Key"] for each in page.get("Contents", [])):
                    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                    if not body.startswith(b"PK"):
                        yield f"bucket {bucket}/{key}", body.decode(errors="replace")


def secrets_of(stack: Stack) -> list[Canary]:
    """What Secrets Manager holds, and the tokens that were used: nobody else may have them."""
    secrets = stack.aws.client("secretsmanager")
    names = [each["Name"] for each in secrets.list_secrets()["SecretList"]]
    held = {name: secrets.get_secret_value(SecretId=name)["SecretString"] for name in names}
    return [Canary(f"the secret {name}", value) for name, value in held.items()]


def client_secret_of(shop: DeployedShop) -> Canary:
    """The one that Stripe gives to an order that waits for its customer, and we to nobody else."""
    secret = shop.client_secret(shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION"))
    assert secret is not None
    return Canary("a client secret of Stripe's", secret)


def place_with_ids_of_a_person(stack: Stack) -> None:
    """An order that Stripe refuses: its message repeats the payment method's id."""
    method, customer, key = (each.value for each in STORED)
    shop = DeployedShop(stack, customer)
    placed = shop.order(key, payment_method=method)
    assert shop.decided_status(placed.json()["order_id"]) == "PAYMENT_DECLINED"


def test_no_canary_is_found_where_it_may_not_be(shop: DeployedShop, stack: Stack) -> None:
    """Fed over HTTP, by Stripe, into queues, into functions: only its DLQ keeps what is poison, and no log has the
    ids that a person's order has."""
    feeder, places = Feeder(shop), Places(stack)
    feeder.over_http()
    feeder.in_a_refusal()
    feeder.in_an_event()
    feeder.into_queues()
    feeder.into_functions()
    place_with_ids_of_a_person(stack)
    tokens = [Canary("an access token", str(each.headers["Authorization"])) for each in (shop.http, shop.staff)]
    canaries = [OPAQUE, *REDACTED, *secrets_of(stack), *tokens, client_secret_of(shop)]
    wait_until_idle(stack, timeout_seconds=PATIENCE_SECONDS)
    kept = {place: found_in(text, canaries) for place, text in places.all(but_messages=feeder.dead)}
    assert {place: names for place, names in kept.items() if names} == {}
    assert [text[:300] for text in feeder.answered if found_in(text, canaries)] == []
    logged = {place: found_in(text, STORED) for place, text in places.logs()}
    assert {place: names for place, names in logged.items() if names} == {}
    # What was searched holds them: each search finds what is there.
    holding = {place for place, text in places.messages([]) if found_in(text, canaries)}
    assert holding
    assert all("dlq" in place.lower() for place in holding)
    tables = "\n".join(text for _, text in places.tables())
    assert found_in(tables, STORED) == [each.name for each in STORED[:2]], "of a key its digest is stored"
    forget_dead_letters(stack)
