"""The floor: claim, charge and finalize on ten threads, with urllib3 and requests that are signed here. No checks.

Nobody should run it: it does not validate, log, count, retry, or know an error from an answer. It shows what the same
HTTP requests cost at least in Python. Signature: AWS General Reference, "Create a signed AWS API request" (version 4).
"""

import hashlib
import hmac
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

TABLE = os.environ["TABLE"]
DYNAMODB, STRIPE = os.environ["AWS_ENDPOINT_URL"], os.environ["STRIPE_API_BASE"]
HOST = urlsplit(DYNAMODB).netloc
REGION, KEY_ID = os.environ["AWS_DEFAULT_REGION"], os.environ["AWS_ACCESS_KEY_ID"]
AUTHORIZATION = "Bearer " + os.environ["STRIPE_API_KEY"]
http = urllib3.PoolManager(maxsize=10, retries=False)
threads = ThreadPoolExecutor(10)


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


@cache
def _signing_key(day: str) -> bytes:
    key = _mac(("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode(), day)
    return _mac(_mac(_mac(key, REGION), "dynamodb"), "aws4_request")


def dynamodb(target: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """One request; returns the status and the body."""
    payload = json.dumps(body).encode()
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{now[:8]}/{REGION}/dynamodb/aws4_request"
    target = f"DynamoDB_20120810.{target}"
    headers = f"host:{HOST}\nx-amz-date:{now}\nx-amz-target:{target}\n"
    canonical = f"POST\n/\n\n{headers}\nhost;x-amz-date;x-amz-target\n{hashlib.sha256(payload).hexdigest()}"
    signed = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = _mac(_signing_key(now[:8]), signed).hex()
    response = http.request(
        "POST",
        DYNAMODB + "/",
        body=payload,
        headers={
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Date": now,
            "X-Amz-Target": target,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, "
            f"SignedHeaders=host;x-amz-date;x-amz-target, Signature={signature}",
        },
    )
    return response.status, json.loads(response.data)


def process(record: dict[str, Any]) -> None:
    """Claim, charge, finalize; a duplicate ends at the claim."""
    order = json.loads(record["body"])["data"]
    key = {"order_id": {"S": order["order_id"]}}
    claim = {"TableName": TABLE, "Item": key, "ConditionExpression": "attribute_not_exists(order_id)"}
    status, _ = dynamodb("PutItem", claim)
    if status != 200:
        return
    fields = {
        "amount": order["amount_minor"],
        "currency": order["currency"].lower(),
        "payment_method": order["payment_method"],
        "allowed_payment_method_types[0]": "card",
        "confirm": "true",
        "metadata[order_id]": order["order_id"],
    }
    response = http.request(
        "POST",
        STRIPE + "/v1/payment_intents",
        body=urlencode(fields),
        headers={
            "Authorization": AUTHORIZATION,
            "Content-Type": "application/x-www-form-urlencoded",
            "Idempotency-Key": order["order_id"],
        },
    )
    charged = json.loads(response.data)["id"]
    dynamodb("PutItem", {"TableName": TABLE, "Item": {**key, "payment_id": {"S": charged}}})


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Process the records at once."""
    list(threads.map(process, event["Records"]))
    return {"batchItemFailures": []}
