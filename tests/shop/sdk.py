"""Stripe's SDK over the shop's Stripe: its client and its objects, as far as they are used here, and its own errors.

The SDK itself takes seven times as long for a request. tests/contract/test_payment_intents.py holds this to it.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any

import stripe
from requests.structures import CaseInsensitiveDict

from onecharge.payments.time_bounds import STRIPE_RETRIES
from stripe_standin.messages import Response

_REQUESTS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "payment_intents": {
        "create": ("create", "POST payment_intents"),
        "confirm": ("confirm", "POST payment_intents/{}/confirm"),
        "cancel": ("cancel", "POST payment_intents/{}/cancel"),
        "retrieve": ("retrieve", "GET payment_intents/{}"),
        "list": ("list", "GET payment_intents"),
    },
    "refunds": {
        "create": ("create refund", "POST refunds"),
        "retrieve": ("refund", "GET refunds/{}"),
        "list": ("refunds", "GET refunds"),
    },
    "disputes": {"retrieve": ("dispute", "GET disputes/{}"), "list": ("disputes", "GET disputes")},
    "events": {"retrieve": ("event", "GET events/{}"), "list": ("events", "GET events")},
    "charges": {"retrieve": ("charge", "GET charges/{}"), "list": ("charges", "GET charges")},
    "payment_methods": {"retrieve": ("payment method", "GET payment_methods/{}")},
}
"""By resource and method of the SDK: what faults and tests call the operation, and its path."""
_raised_for: Any = stripe.StripeClient("sk_test")._requestor.specific_v1_api_error


class SdkObject:
    """An object of Stripe's, as the SDK shows it: attributes and items, and no dictionary's methods but `to_dict`."""

    def __init__(self, body: Mapping[str, Any], last_response: Any = None) -> None:
        self._body, self.last_response = body, last_response

    def __getattr__(self, name: str) -> Any:
        try:
            return _shown(self._body[name])
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> Any:
        return _shown(self._body[name])

    def __contains__(self, name: str) -> bool:
        return name in self._body

    def to_dict(self) -> dict[str, Any]:
        return dict(self._body)


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return SdkObject(value)
    return [_shown(each) for each in value] if isinstance(value, list) else value


class SdkList:
    """A page of a list, as the SDK shows it; `after` requests the next one, if there is one."""

    def __init__(self, data: list[Any], after: Callable[[], "SdkList"] | None, headers: Mapping[str, str]) -> None:
        self.data, self.has_more, self._after = data, after is not None, after
        self.last_response = SimpleNamespace(code=200, headers={**_HEADERS, **headers})

    def auto_paging_iter(self) -> Iterator[Any]:
        """Every object of this page and of those after it."""
        yield from self.data
        if self._after:
            yield from self._after().auto_paging_iter()


_HEADERS = CaseInsensitiveDict({"Request-Id": "req_1", "Stripe-Version": "in process"})
_REPLAYED = CaseInsensitiveDict({**_HEADERS, "Idempotent-Replayed": "true"})
_FIRST_RESPONSE = SimpleNamespace(code=200, headers=_HEADERS)
_REPLAYED_RESPONSE = SimpleNamespace(code=200, headers=_REPLAYED)


def sdk_error(status: int | None, *, replay: bool = False, **details: Any) -> stripe.StripeError:
    """The SDK's error for such an answer; without a status, there is none."""
    if status is None:
        return stripe.APIConnectionError("no answer", should_retry=True)
    type_ = {402: "card_error"}.get(status, "api_error" if status >= 500 else "invalid_request_error")
    error = {"type": type_, "message": "message", **details}
    raised: stripe.StripeError = _raised_for("", status, {"error": error}, _REPLAYED if replay else _HEADERS, error)
    return raised


def answer_of(response: Response) -> Any:
    """What the SDK makes of a response: an object, or an error that it raises."""
    replay = "Idempotent-Replayed" in response.headers
    if response.status != 200:
        raise sdk_error(response.status, replay=replay, **response.body["error"])
    return SdkObject(response.body, _REPLAYED_RESPONSE if replay else _FIRST_RESPONSE)


Through = Callable[[str, str, Callable[[], Any]], Any]
"""Takes the operation, its idempotency key or the id in its path, and what sends it."""


def client_of(
    stripe_: Any,
    *,
    retries: int = STRIPE_RETRIES,
    account: int | None = None,
    through: Through = lambda operation, about, send: send(),
) -> Any:
    """A `stripe.StripeClient` over it, that sends again what the SDK sends again, under the same key.

    Args:
        stripe_: a ShopStripe, or what has its `send` and `page`: each sends one request, once.
        account: whose API key it has, whatever the shop's is.
        through: each request goes through it.
    """
    # Without a key the SDK makes one up, so that its own retries charge once (stripe-python, "Idempotency").
    keys = (f"made up by the SDK {number}" for number in count())

    def requested(operation: str, method: str, path: str, *given: Any) -> Any:
        """As the SDK takes it: the ids of its path, its parameters, and the SDK's options."""
        ids, rest = given[: path.count("{}")], given[path.count("{}") :]
        parameters, options = ({} if each is None else each for each in (*rest, None, None)[:2])
        key, path = options.get("idempotency_key"), path.format(*ids)
        if method == "GET" and not ids:
            send = partial(stripe_.page, operation, path, parameters, account)
        else:
            key_sent = (key or next(keys)) if method == "POST" else None
            send = partial(stripe_.send, operation, method, path, parameters, key_sent, account)
        return through(
            operation, key or "".join(ids), partial(_tried, send, options.get("max_network_retries", retries))
        )

    def methods_of(resource: str) -> SimpleNamespace:
        asked = _REQUESTS[resource].items()
        return SimpleNamespace(**{name: partial(requested, each, *path.split()) for name, (each, path) in asked})

    return SimpleNamespace(v1=SimpleNamespace(**{resource: methods_of(resource) for resource in _REQUESTS}))


def _tried(send: Callable[[], Any], retries: int) -> Any:
    """stripe-python, `HTTPClient._should_retry`, of answers without `Stripe-Should-Retry`."""
    for tries_left in reversed(range(retries + 1)):
        try:
            return send()
        except stripe.StripeError as error:
            status = error.http_status
            if not (status is None or status == 409 or status >= 500) or not tries_left:
                raise
    raise AssertionError
