"""What the staff does to an order: a refund through the API, a cancellation as `ops review resolve --as cancel`.

Both keep who did it and why, which the order's timeline shows.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from onecharge.contract.money import as_money, decimals_of
from onecharge.contract.states import OrderStatus
from onecharge.runtime.dynamodb import from_item
from ops import token
from ops.connection import Stack
from ops.errors import Problem
from ops.resolutions import Resolution
from ops.review import reason_of, resolve, reviews_of

SCOPE = "onecharge/refund"
_SECONDS = 60
_NO_ANSWERS = (401, 403, 408, 429)
"""As a 5xx these say nothing of an earlier try under the same key."""


@dataclass(frozen=True)
class Asked:
    """A refund as a form asks for it."""

    key: str
    amount: str
    reason: str


@dataclass(frozen=True)
class Staff:
    """Acts on one stack. Methods return what is done, in a sentence, and raise Problem if it is refused."""

    stack: Stack
    api_url: str
    token: Callable[[], str]
    """An access token with the staff's scope."""
    unanswered: dict[str, Asked] = field(default_factory=dict)
    """By order id: a refund that was sent, and that may be stored. It is sent again under its key, and no other is."""

    @classmethod
    def of_deployed(cls, stack: Stack) -> "Staff":
        """With a token of `ops token`, and the operator's credentials."""
        wanted = Namespace(customer="console", scope=SCOPE)
        return cls(stack, stack.api_url, lambda: str(token.run(stack, wanted).document["access_token"]))

    def refund(self, order_id: str, *, amount: str, reason: str, key: str) -> str:
        """Refund the amount, such as `12.50`, or “all” that is left. The same key refunds once."""
        currency = str(self._order(order_id)["currency"])
        if (sent := self.unanswered.get(order_id)) and sent.key != key:
            raise Problem("this order's last refund was not answered: reload its page, and send that one again first")
        # The token is a machine's on a deployed stack: the reason says which person.
        by = "" if self.stack.is_local else f" ({self.stack.caller})"
        body: dict[str, Any] = {"reason": reason_of(reason_of(reason) + by)}
        if amount.strip() != "all":
            body["amount"] = _minor(amount, currency)
        headers = {"Authorization": f"Bearer {self.token()}", "Idempotency-Key": key}
        self.unanswered[order_id] = Asked(key, amount, reason)
        try:
            url = f"{self.api_url}/orders/{order_id}/refunds"
            response = requests.post(url, json=body, headers=headers, timeout=_SECONDS)
            answer = response.json()
        except (requests.RequestException, ValueError) as error:
            raise Problem(_unknown(type(error).__name__)) from None
        why = str(answer.get("detail") or answer.get("message") or response.status_code)
        if response.status_code in _NO_ANSWERS or response.status_code >= 500:
            raise Problem(_unknown(why))
        self.unanswered.pop(order_id, None)
        if not response.ok:
            raise Problem(why)
        return f"A refund of {as_money(answer['amount'], answer['currency'])} is requested."

    def cancel(self, order_id: str, *, reason: str) -> str:
        """Cancel the order unless it is paid."""
        if self._order(order_id)["status"] == OrderStatus.PAID:
            raise Problem("the order is paid: it can be refunded, not canceled")
        is_done, what = resolve(order_id, Resolution.CANCEL, reason_of(reason), reviews_of(self.stack))
        if not is_done:
            raise Problem(what.removeprefix("refused: "))
        return f"Canceling: {what.removeprefix('done: ')}."

    def _order(self, order_id: str) -> Mapping[str, Any]:
        item = self.stack.item("OrdersTable", order_id=order_id)
        if item is None:
            raise Problem("there is no such order")
        return from_item(item)


def _unknown(why: str) -> str:
    return f"the API gives no answer ({why}), and the refund may be stored: send the form below again, it refunds once"


def _minor(amount: str, currency: str) -> int:
    """The amount in minor units. Raises Problem."""
    decimals = decimals_of(currency)
    found = re.fullmatch(r"(\d{1,12})(?:\.(\d+))?", amount.strip())
    if found is None or len(found[2] or "") > decimals:
        raise Problem(
            f"{amount.strip()!r} is not an amount in {currency}: write it as {'12.50' if decimals else '12'}, or all"
        )
    return int(found[1] + (found[2] or "").ljust(decimals, "0"))
