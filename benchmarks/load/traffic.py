"""The orders of a run: placed over HTTP with signed tokens, followed in the functions' log, counted in the ledger.

When an order became PAID is read from update_order's log line of it, after the run. Asking the API for each order would
be load of its own, and the tables have no such time below a second.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

import requests
from requests.adapters import HTTPAdapter

from benchmarks.load.open_loop import IN_FLIGHT_MAX, Sent
from local.logs import log_events
from local.stack import Stack

ANSWER_SECONDS_MAX = 60
_CUSTOMERS = 20
_ORDER = {
    "currency": "eur",
    "payment_method": "pm_card_visa",
    "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1250}],
}


class NotAccepted(Exception):
    """The API has answered with another status than 202."""


class Client:
    """Places orders as their customers do."""

    def __init__(self, stack: Stack) -> None:
        self._url = f"{stack.api_url}/orders"
        self._run = uuid4().hex
        self._tokens = [stack.issuer.token(f"cus_load_{number}") for number in range(_CUSTOMERS)]
        self._http = requests.Session()
        self._http.mount("http://", HTTPAdapter(pool_maxsize=IN_FLIGHT_MAX))

    def place(self, number: int) -> str:
        """Place the order of this number; returns its id. Raises NotAccepted, or requests' errors by their kind."""
        headers = {
            "Authorization": f"Bearer {self._tokens[number % _CUSTOMERS]}",
            "Idempotency-Key": f"{self._run}-{number}",
        }
        try:
            answer = self._http.post(self._url, json=_ORDER, headers=headers, timeout=ANSWER_SECONDS_MAX)
        except requests.RequestException as error:
            raise NotAccepted(type(error).__name__) from None
        if answer.status_code != 202:
            raise NotAccepted(f"HTTP {answer.status_code}")
        return str(answer.json()["order_id"])


def paid_times(messages: Iterable[str]) -> Mapping[str, float]:
    """When each order became PAID, in seconds since 1970, by the log lines of update_order."""
    times: dict[str, float] = {}
    for message in messages:
        line = _as_json(message)
        if line.get("service") == "update_order" and line.get("status") == "PAID" and "timestamp" in line:
            at = datetime.fromisoformat(line["timestamp"].replace(",", ".")).timestamp()
            # A duplicate of the event would log again, that it changes nothing.
            times[line["order_id"]] = min(at, times.get(line["order_id"], at))
    return times


def _as_json(message: str) -> Mapping[str, Any]:
    try:
        line = json.loads(message)
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def follow(sent: Sequence[Sent], stack: Stack) -> None:
    """Write into each request when its order became PAID."""
    since_ms = int(min(each.due for each in sent) * 1000)
    events = log_events(stack.aws.client("logs"), f"/aws/lambda/{stack.stack_name}", since_ms=since_ms)
    times = paid_times(str(event["message"]) for event in events)
    for each in sent:
        each.paid = times.get(each.order_id or "")


def charges_by_order(stack: Stack) -> Mapping[str, int]:
    """How often the ledger has charged each order."""
    return Counter(str(charge.order_id) for charge in stack.stripe.ledger().charges)
