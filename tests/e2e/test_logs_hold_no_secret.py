"""No secret reaches a log, even where a customer, Stripe or a message repeats it."""

import json
import time
from urllib.parse import quote
from uuid import uuid4

import requests

from local.observe import log_events, wait_until_idle
from local.stack import Stack
from stripe_standin.faults import Fault
from stripe_standin.webhook_endpoints import signature
from tests.support.deployed_shop import (
    PATIENCE_SECONDS,
    PRICE,
    SKU,
    THREE_D_SECURE_CARD,
    DeployedShop,
    forget_dead_letters,
)
from tests.support.stacks import own_stack


@own_stack
def test_no_secret_reaches_a_log(shop: DeployedShop, stack: Stack) -> None:
    """Keys, tokens and payment methods: in requests, refusals, events, poison messages and unexpected errors."""
    manager = stack.aws.client("secretsmanager")
    webhook_secret = manager.get_secret_value(SecretId=stack.stripe_webhook_secret_id)["SecretString"]
    secrets = {
        "Stripe's key": manager.get_secret_value(SecretId=stack.stripe_secret_id)["SecretString"],
        "the webhook secret": webhook_secret,
        "a client secret": shop.client_secret(shop.placed(THREE_D_SECURE_CARD, "REQUIRES_ACTION")) or "",
        "a customer's token": str(shop.http.headers["Authorization"]).removeprefix("Bearer "),
        "a payment method": f"pm_{uuid4().hex}",
        "a card's number": "4000056655665556",
        "an idempotency key": f"key-{uuid4()}",
    }
    assert all(secrets.values())
    everything = " | ".join(secrets.values())

    # A customer repeats them.
    shop.order(secrets["an idempotency key"], payment_method=secrets["a payment method"])  # Stripe knows no such one.
    card = shop.body(payment_method=secrets["a card's number"])
    for body in (card, shop.body(payment_method=everything), {everything: everything}, f'{{"malformed": "{everything}'):
        assert shop.send(body, str(uuid4())).status_code == 400
    shop.get(quote(everything, safe=""))
    # So does Stripe, in a refusal and in events, one of them forged.
    error = {"type": "invalid_request_error", "message": everything}
    shop.stripe.add_fault(Fault.RESPONSE, {"amount": str(3 * PRICE)}, status=400, error=error)
    refused = shop.order(items=[{"sku": SKU, "quantity": 3}]).json()["order_id"]
    intent = {"id": "pi_x", "object": "payment_intent", "client_secret": everything, "metadata": {"note": everything}}
    event = {"id": "evt_x", "object": "event", "type": "payment_intent.succeeded", "created": 1}
    body = json.dumps({**event, "data": {"object": intent}})
    url, signed = f"{stack.api_url}/stripe/events", signature(body, webhook_secret, int(time.time()))
    for header, status in ((signed, 200), (f"t=1,v1={everything}", 400)):
        answer = requests.post(url, body, headers={"Stripe-Signature": header}, timeout=PATIENCE_SECONDS)
        assert answer.status_code == status
    # So does a message, and what no function expects.
    for url in (stack.payments_queue_url, stack.order_updates_queue_url, stack.refunds_queue_url):
        for body in (everything, json.dumps({"specversion": everything})):
            stack.aws.client("sqs").send_message(QueueUrl=url, MessageBody=body)
    functions = stack.aws.client("lambda")
    for function in functions.list_functions()["Functions"]:
        unexpected = json.dumps({"Records": [{"body": everything}], "body": everything, everything: everything})
        functions.invoke(FunctionName=function["FunctionName"], Payload=unexpected.encode())

    assert shop.decided_status(refused) == "PAID"
    wait_until_idle(stack, timeout_seconds=PATIENCE_SECONDS)
    logs = stack.aws.client("logs")
    groups = [each["logGroupName"] for each in logs.describe_log_groups()["logGroups"]]
    logged = {group: "\n".join(event["message"] for event in log_events(logs, group)) for group in groups}
    assert any(refused in text for text in logged.values())
    assert [(group, name) for group, text in logged.items() for name, value in secrets.items() if value in text] == []
    forget_dead_letters(stack)
