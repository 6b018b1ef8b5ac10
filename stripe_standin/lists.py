"""Lists and expansion. Source: Stripe API reference, "Pagination", "Expanding Responses"."""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stripe_standin.account import Account
from stripe_standin.balance import BalanceTransaction
from stripe_standin.charges import Charge
from stripe_standin.disputes import Dispute
from stripe_standin.errors import invalid, missing, missing_parameter
from stripe_standin.messages import Request
from stripe_standin.parameters import allow, integer, values
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.payment_methods import PaymentMethod
from stripe_standin.refunds import Refund
from stripe_standin.webhook_endpoints import WebhookEndpoint

_PAGING = r"limit|starting_after|ending_before|created(\[(gte|gt|lte|lt)\])?"
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "created[gte]": operator.ge,
    "created[gt]": operator.gt,
    "created[lte]": operator.le,
    "created[lt]": operator.lt,
    "created": operator.eq,
}


@dataclass(frozen=True)
class _Event:
    """An event with the attributes that `_list` expects of an object."""

    body: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.body["id"])

    @property
    def created(self) -> int:
        return int(self.body["created"])

    def as_json(self) -> dict[str, Any]:
        return self.body


def payment_intents(account: Account, request: Request) -> dict[str, Any]:
    return _list(request, account.all(PaymentIntent).values())


def refunds(account: Account, request: Request) -> dict[str, Any]:
    return _list(request, account.all(Refund).values(), "payment_intent", "charge")


def charges(account: Account, request: Request) -> dict[str, Any]:
    return _list(request, account.all(Charge).values(), "payment_intent")


def disputes(account: Account, request: Request) -> dict[str, Any]:
    return _list(request, account.all(Dispute).values(), "payment_intent", "charge")


def balance_transactions(account: Account, request: Request) -> dict[str, Any]:
    return _list(request, account.all(BalanceTransaction).values(), "currency", "source", "type")


def events(account: Account, request: Request) -> dict[str, Any]:
    wanted = set(values(request.parameters, "types"))
    matching = [_Event(event) for event in account.events if not wanted or event["type"] in wanted]
    return _list(request, matching, "type", other=r"types\[\d*\]")


def webhook_endpoints(account: Account, request: Request) -> dict[str, Any]:
    return _list(request, account.all(WebhookEndpoint).values())


def event(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    allow(request)
    for each in account.events:
        if each["id"] == identifier:
            return each
    raise missing("event", identifier, "id")


def expand(account: Account, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    """Replace ids by objects, as `expand` requests."""
    for path in values(request.parameters, "expand"):
        body = _expanded(account, body, path.split("."), path)
    return body


def _list(request: Request, oldest_first: Iterable[Any], *filters: str, other: str = "limit") -> dict[str, Any]:
    """A page, newest first, by cursor. Filters by `created` and by these fields, never by metadata."""
    parameters = allow(request, _PAGING, other, *filters)
    fields = {name: parameters[name] for name in filters if name in parameters}
    data = [item for item in reversed(list(oldest_first)) if _created_within(item.created, parameters)]
    # What was executed late is as old as its request.
    data.sort(key=operator.attrgetter("created"), reverse=True)
    data = [item for item in data if not fields or fields.items() <= _filterable(item).items()]
    ids = [item.id for item in data]
    limit = _limit(parameters)
    if "starting_after" in parameters:
        data = data[_index_of(ids, parameters["starting_after"], request, "starting_after") + 1 :]
    if "ending_before" in parameters:
        before = data[: _index_of(ids, parameters["ending_before"], request, "ending_before")]
        data, more = before[-limit:], len(before) > limit
    else:
        data, more = data[:limit], len(data) > limit
    page = [item.as_json() for item in data]
    return {"object": "list", "data": page, "has_more": more, "url": request.path}


def _filterable(item: Any) -> dict[str, str]:
    return {name: value for name, value in item.as_json().items() if isinstance(value, str)}


def _created_within(created: int, parameters: Mapping[str, str]) -> bool:
    return all(
        holds(created, integer(parameters[name], name)) for name, holds in _COMPARISONS.items() if name in parameters
    )


def _limit(parameters: Mapping[str, str]) -> int:
    limit = integer(parameters.get("limit", "10"), "limit")
    if not 1 <= limit <= 100:
        raise invalid("Limit must be between 1 and 100.", param="limit")
    return limit


def _index_of(ids: list[str], identifier: str, request: Request, param: str) -> int:
    if identifier not in ids:
        raise missing_parameter(request.path.split("/")[2].removesuffix("s"), identifier, param)
    return ids.index(identifier)


def _expanded(account: Account, body: dict[str, Any], path: list[str], requested: str) -> dict[str, Any]:
    name, *rest = path
    if name not in body:
        raise invalid(f"This property cannot be expanded ({requested}).", param="expand")
    value = body[name]
    if isinstance(value, list):
        return {**body, name: [_expanded(account, item, rest, requested) for item in value]}
    object_ = _find(account, value) if isinstance(value, str) else value
    if (object_ is None and value is not None) or not (object_ is None or isinstance(object_, dict)):
        raise invalid(f"This property cannot be expanded ({requested}).", param="expand")
    return {**body, name: _expanded(account, object_, rest, requested) if object_ and rest else object_}


def _find(account: Account, identifier: str) -> dict[str, Any] | None:
    kinds: tuple[type[Any], ...] = (PaymentIntent, PaymentMethod, Charge, Refund, Dispute, BalanceTransaction)
    found = (account.all(kind).get(identifier) for kind in kinds)
    return next((each.as_json() for each in found if each is not None), None)
