"""Requests to a Stripe in memory, and what they were answered: what two of them may mix up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import stripe

from onecharge.payments.stripe_responses import IDEMPOTENCY_KEY


@dataclass(frozen=True)
class Exchange:
    """A request that was answered."""

    key: str | None
    """Of a POST."""
    read: str
    """What a GET has asked for; "" of a POST."""
    give: Callable[[], Any]
    """Returns the answer, or raises it."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The request's key, which Stripe returns with the answer."""
        return {} if self.key is None else {IDEMPOTENCY_KEY: self.key}

    def may_get(self, other: "Exchange") -> bool:
        """Whether the other request's answer may reach this one.

        Not those of which nobody can know it: the protocol assumes that a page is of the list that it names, and that
        an object which was read is not older than the request (docs/protocol.md, "Assumptions").
        """
        return not (self.read and self.read == other.read)


def answered(send: Callable[[], Any], *, key: str | None, read: str) -> Exchange:
    """Send the request. Raises stripe.StripeError if there is no answer."""
    result: Any
    try:
        result = send()
    except stripe.StripeError as error:
        if error.http_status is None:
            raise
        result = error

    def give() -> Any:
        if isinstance(result, stripe.StripeError):
            raise result
        return result

    return Exchange(key, read, give)
