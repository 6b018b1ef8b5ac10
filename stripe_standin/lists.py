"""Lists, retrieval and expansion. Source: Stripe API reference, "Pagination", "Expanding Responses", "Events"."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stripe_standin.account import Account, Object
from stripe_standin.balance import BalanceTransaction
from stripe_standin.charges import Charge
from stripe_standin.disputes import Dispute
from stripe_standin.errors import invalid, missing, missing_parameter
from stripe_standin.messages import Request
from stripe_standin.parameters import allow, integer, values
from stripe_standin.payment_intents import PaymentIntent
from stripe_standin.payment_methods import PaymentMethod
from stripe_standin.refunds import Refund

_PAGING = r"limit|starting_after|created(\[(gte|gt|lte|lt)\])?"
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "created[gte]": operator.ge,
    "created[gt]": operator.gt,
    "created[lte]": operator.le,
    "created[lt]": operator.lt,
    "created": operator.eq,
}
_EXPANDABLE = (PaymentIntent, PaymentMethod, Charge, Refund, Dispute, BalanceTransaction)
_TYPES_MAX = 20


def retrieve(kind: type[Object], account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """GET /v1/{kind}/{id}"""
    allow(request)
    return account.find(kind, identifier).as_json()


def listed(kind: type[Object], filter_: str, account: Account, request: Request) -> dict[str, Any]:
    """GET /v1/{kind}, filtered by `created` and by this field, never by metadata."""
    parameters = allow(request, _PAGING, filter_ or "limit")
    bodies = (each.as_json() for each in account.all(kind).values())
    return _page(request, (each for each in bodies if parameters.get(filter_, each.get(filter_)) == each.get(filter_)))


def events(account: Account, request: Request) -> dict[str, Any]:
    """GET /v1/events, by one `type`, in which * stands for any text, or by several exact `types`."""
    parameters = allow(request, _PAGING, r"type|types\[\d*\]")
    types = values(parameters, "types")
    if types and "type" in parameters:
        raise invalid("You may pass either `type` or `types`, but not both.", param="types")
    if len(types) > _TYPES_MAX:
        raise invalid(f"`types` takes {_TYPES_MAX} event types.", param="types")
    pattern = "|".join(map(re.escape, types or [parameters.get("type", "*")]))
    pattern = pattern if types else pattern.replace(r"\*", ".*")
    return _page(request, (each for each in account.events if re.fullmatch(pattern, each["type"])))


def event(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """GET /v1/events/{id}"""
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


def _page(request: Request, oldest_first: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """A page, newest first, by cursor."""
    parameters = request.parameters
    data = [each for each in reversed(list(oldest_first)) if _created_within(each["created"], parameters)]
    # An object that was created late is as old as its request.
    data.sort(key=operator.itemgetter("created"), reverse=True)
    limit = _limit(parameters)
    if "starting_after" in parameters:
        last = parameters["starting_after"]
        if last not in (ids := [each["id"] for each in data]):
            raise missing_parameter(request.path.split("/")[2].removesuffix("s"), last, "starting_after")
        data = data[ids.index(last) + 1 :]
    return {"object": "list", "data": data[:limit], "has_more": len(data) > limit, "url": request.path}


def _created_within(created: int, parameters: Mapping[str, str]) -> bool:
    return all(
        holds(created, integer(parameters[name], name)) for name, holds in _COMPARISONS.items() if name in parameters
    )


def _limit(parameters: Mapping[str, str]) -> int:
    limit = integer(parameters.get("limit", "10"), "limit")
    if not 1 <= limit <= 100:
        raise invalid("Limit must be between 1 and 100.", param="limit")
    return limit


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
    kinds: tuple[type[Object], ...] = _EXPANDABLE
    found = (account.all(kind).get(identifier) for kind in kinds)
    return next((each.as_json() for each in found if each is not None), None)
