"""DynamoDB in memory, behind boto3's client: the stores above it are the deployed ones, expressions included.

It knows the operations and the expressions that are used here, and refuses all others. tests/contract/test_replay.py
holds it to moto's DynamoDB, with the requests that other tests have sent. `Io` is how the simulation gets in between.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

Value = dict[str, Any]
Item = dict[str, Value]


class Io:
    """What each request of a worker passes through; here, nothing comes in between."""

    def __init__(self, now: int = 0) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def pause(self, where: str) -> None:
        """The worker has reached a boundary; others may run, time may pass, and it may never come back."""

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        """Which of these faults happens here, if any."""
        return None

    def happens(self, what: str) -> bool:
        """Whether something that is allowed at any time happens now."""
        return True

    def met(self, what: str) -> None:
        """Something that is worth counting has happened."""

    def pass_time(self, seconds: int) -> None:
        self.time += seconds

    def confirms(self, intent: Any, key: str) -> None:
        """Stripe is about to execute a confirm of the PaymentIntent, now or later."""

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        """An item was written, or deleted (None)."""


class ConditionalCheckFailed(ClientError):
    """The condition does not hold; carries the item with ALL_OLD."""


class TransactionCanceled(ClientError):
    """One of the conditions does not hold; carries a reason for each action."""


SENT_AGAIN = "answer lost, sent again by botocore"
"""The write is made, and the second request meets it: runtime/aws.py allows botocore two."""
_BATCH_GET_MAX = 100
"""Amazon DynamoDB API Reference, BatchGetItem."""


def _error(kind: type[ClientError], operation: str, code: str, **details: Any) -> ClientError:
    return kind({"Error": {"Code": code, "Message": code}, **details}, operation)  # type: ignore[typeddict-item]


def _invalid(message: str) -> ClientError:
    return ClientError({"Error": {"Code": "ValidationException", "Message": message}}, "Validation")


@dataclass
class MemoryDynamoDB:
    """`boto3.client("dynamodb")` with tables in memory; `keys` names the key attributes of each table."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    io: Io = field(default_factory=Io)
    indexes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """For each table its global secondary indexes, with their key attributes; an item without them is not in it."""
    projections: dict[tuple[str, str | None], set[str]] = field(default_factory=dict)
    """The attributes that an index has, if not all."""
    tables: dict[str, dict[tuple[str, ...], Item]] = field(default_factory=dict)
    ignored_conditions: list[str] = field(default_factory=list)
    """Parts of conditions that are left out: how the simulation breaks the protocol on purpose."""
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The request that made each table, if one did."""
    exceptions = SimpleNamespace(
        ConditionalCheckFailedException=ConditionalCheckFailed, TransactionCanceledException=TransactionCanceled
    )

    def create_table(self, *, TableName: str, KeySchema: Any, GlobalSecondaryIndexes: Any = (), **more: Any) -> None:
        def names(schema: Any) -> tuple[str, ...]:
            return tuple(each["AttributeName"] for each in schema)

        keys, asked = names(KeySchema), {"TableName": TableName, "KeySchema": KeySchema, **more}
        more_asked = {"GlobalSecondaryIndexes": GlobalSecondaryIndexes} if GlobalSecondaryIndexes else {}
        self.made[TableName] = asked | more_asked
        self.keys = {**self.keys, TableName: keys}
        indexes = {each["IndexName"]: names(each["KeySchema"]) for each in GlobalSecondaryIndexes}
        self.indexes = {**self.indexes, TableName: indexes}
        for each in GlobalSecondaryIndexes:
            if each["Projection"]["ProjectionType"] != "ALL":
                others = each["Projection"].get("NonKeyAttributes", ())
                self.projections[TableName, each["IndexName"]] = {*keys, *indexes[each["IndexName"]], *others}

    # ------------------------------------------------------------ reads

    def get_item(self, **given: Any) -> dict[str, Any]:
        self._before("GetItem")
        item = self._table(given["TableName"]).get(self._key(given["TableName"], given["Key"]))
        self._after("GetItem")
        return {"Item": _projected(item, given)} if item is not None else {}

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:
        """Some keys may be left out of the answer, as when DynamoDB throttles."""
        self._before("BatchGetItem")
        responses: dict[str, list[Item]] = {}
        left: dict[str, Any] = {}
        for name, given in RequestItems.items():
            keys = list(given["Keys"])
            if not 0 < len(keys) <= _BATCH_GET_MAX or len({self._key(name, key) for key in keys}) < len(keys):
                raise _invalid("no keys, too many, or one of them twice")
            if len(keys) > 1 and self.io.fault("dynamodb BatchGetItem", ("unprocessed",)):
                left[name] = {**given, "Keys": keys[1:]}
                keys = keys[:1]
            found = [self._table(name).get(self._key(name, key)) for key in keys]
            responses[name] = [dict(item) for item in found if item is not None]
        self._after("BatchGetItem")
        return {"Responses": responses, "UnprocessedKeys": left}

    def scan(self, **given: Any) -> dict[str, Any]:
        return self._page("Scan", given)

    def query(self, **given: Any) -> dict[str, Any]:
        return self._page("Query", given)

    def get_paginator(self, operation: str) -> Any:
        """As botocore's: `paginate` yields one page after the other."""

        def paginate(**given: Any) -> Iterator[dict[str, Any]]:
            page = getattr(self, operation)(**given)
            yield page
            while "LastEvaluatedKey" in page:
                page = getattr(self, operation)(**given, ExclusiveStartKey=page["LastEvaluatedKey"])
                yield page

        return SimpleNamespace(paginate=paginate)

    def _page(self, operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """In the order of the keys; the limit counts what the filter leaves out, too."""
        self._before(operation)
        name, index = given["TableName"], given.get("IndexName")
        by = (*self.indexes[name][index], *self.keys[name]) if index else self.keys[name]
        backwards = given.get("ScanIndexForward") is False
        listed = sorted(
            (
                (_place(item, by), item)
                for item in self._table(name).values()
                if all(attribute in item for attribute in by) and _holds("KeyConditionExpression", given, item)
            ),
            key=itemgetter(0),
            reverse=backwards,
        )
        if "ExclusiveStartKey" in given:
            start = _place(given["ExclusiveStartKey"], by)
            listed = [each for each in listed if (each[0] < start if backwards else each[0] > start)]
        read = [item for _, item in listed[: given.get("Limit")]]
        visible = self.projections.get((name, index))
        shown = [{at: item[at] for at in item.keys() & visible} for item in read] if visible else read
        found = [_projected(item, given) for item in shown if _holds("FilterExpression", given, item)]
        answer: dict[str, Any] = {"Items": found, "Count": len(found), "ScannedCount": len(read)}
        if len(read) < len(listed):
            answer["LastEvaluatedKey"] = {attribute: read[-1][attribute] for attribute in by}
        self._after(operation)
        return answer

    # ------------------------------------------------------------ writes

    def put_item(self, **given: Any) -> dict[str, Any]:
        return self._write("PutItem", given)

    def update_item(self, **given: Any) -> dict[str, Any]:
        return self._write("UpdateItem", given)

    def delete_item(self, **given: Any) -> dict[str, Any]:
        return self._write("DeleteItem", given)

    def transact_write_items(self, *, TransactItems: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        if self._before("TransactWriteItems", ("throttled", "transaction conflict")) == "transaction conflict":
            raise self._canceled([{"Code": "TransactionConflict"} for _ in TransactItems])
        actions = [(name, dict(given)) for action in TransactItems for name, given in action.items()]
        if len({(given["TableName"], self._key_given(given)) for _, given in actions}) < len(actions):
            raise _invalid("Transaction request cannot include multiple operations on one item")
        reasons = [self._refusal(given) for _, given in actions]
        if any(reasons):
            raise self._canceled([reason or {"Code": "None"} for reason in reasons])
        for name, given in actions:
            self._apply(f"{name}Item", given)
        self._after("TransactWriteItems")
        return {}

    def _canceled(self, reasons: list[dict[str, Any]]) -> ClientError:
        self._after("TransactWriteItems")
        code = "TransactionCanceledException"
        return _error(TransactionCanceled, "TransactWriteItems", code, CancellationReasons=reasons)

    def _write(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        self._before(operation)
        refusal = self._refusal(given)
        if refusal is not None:
            self._after(operation)
            shown = {"Item": refusal["Item"]} if "Item" in refusal else {}
            raise _error(ConditionalCheckFailed, operation, "ConditionalCheckFailedException", **shown)
        new = self._apply(operation, given)
        if self._after(operation, SENT_AGAIN) == SENT_AGAIN:
            return self._write(operation, given)
        return {"Attributes": dict(new)} if new is not None and given.get("ReturnValues") == "ALL_NEW" else {}

    def _refusal(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        condition = given.get("ConditionExpression", "")
        for ignored in self.ignored_conditions:
            condition = condition.replace(ignored, "")
        item = self._table(given["TableName"]).get(self._key_given(given))
        if not condition.strip() or _holds("ConditionExpression", {**given, "ConditionExpression": condition}, item):
            return None
        shown = item is not None and given.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        return {"Code": "ConditionalCheckFailed", **({"Item": dict(item or {})} if shown else {})}

    def _apply(self, operation: str, given: Mapping[str, Any]) -> Item | None:
        name = given["TableName"]
        table, key = self._table(name), self._key_given(given)
        old = table.get(key)
        new: Item | None = None
        if operation == "PutItem":
            new = dict(given["Item"])
        elif operation == "UpdateItem":
            new = _updated(old or given["Key"], given)
            if any(new.get(attribute) != given["Key"][attribute] for attribute in self.keys[name]):
                raise _invalid("Cannot update an attribute that is part of the key")
        if new is None:
            table.pop(key, None)
        else:
            table[key] = new
        self.io.wrote(name, old, new)
        return new

    # ------------------------------------------------------------ what each request needs

    def _table(self, name: str) -> dict[tuple[str, ...], Item]:
        return self.tables.setdefault(name, {})

    def _key_given(self, given: Mapping[str, Any]) -> tuple[str, ...]:
        return self._key(given["TableName"], given.get("Key") or given["Item"])

    def _key(self, table: str, item: Mapping[str, Value]) -> tuple[str, ...]:
        return tuple([value for name in self.keys[table] for value in item[name].values()])

    def _before(self, operation: str, kinds: Sequence[str] = ("throttled",)) -> str | None:
        self.io.pause(f"dynamodb {operation}")
        kind = self.io.fault(f"dynamodb {operation}", kinds)
        if kind == "throttled":
            raise _error(ClientError, operation, "ProvisionedThroughputExceededException")
        return kind

    def _after(self, operation: str, *more: str) -> str | None:
        kind = self.io.fault(f"dynamodb {operation}", ("answer lost", *more))
        if kind == "answer lost":
            raise ReadTimeoutError(endpoint_url="memory")
        if kind is None:
            self.io.pause(f"dynamodb {operation} answered")
        return kind


# ---------------------------------------------------------------- expressions
#
# A condition is Python, but for the spelling: `attempt = :n AND #s IN (:a, :b)` becomes
# `_at(item, names, "attempt") == _Operand(values[":n"]) and _at(item, names, "#s") in _any_of(…)`, and is compiled.

_TOKEN = re.compile(r"\s*(<=|>=|<>|[()=<>,+-]|:\w+|#?[A-Za-z_]\w*(?:\.#?[A-Za-z_]\w*)*)")
_PYTHON = {"=": "==", "<>": "!=", "AND": "and", "OR": "or", "NOT": "not", "IN": "in _any_of"}
_FUNCTIONS = ("attribute_exists", "attribute_not_exists", "if_not_exists")
_CLAUSE = re.compile(r"\b(SET|REMOVE|ADD)\b")
_COMMA = re.compile(r",(?![^(]*\))")
"""One that is not within the brackets of a function."""

_Names = Mapping[str, str]
_Compiled = Callable[[Item, _Names, Mapping[str, Value]], Any]


class _Operand:
    """A value with its type; without one, where a path leads nowhere: it differs from everything."""

    __slots__ = ("kind", "plain", "typed")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, typed: Value | None) -> None:
        plain: Any = None
        self.typed, self.kind = typed, ""
        if typed is not None:
            [(self.kind, plain)] = typed.items()
        self.plain = Decimal(plain) if self.kind == "N" else plain

    def __eq__(self, other: Any) -> bool:
        return bool(self.kind) and self.kind == other.kind and self.plain == other.plain

    def __lt__(self, other: "_Operand") -> bool:
        return bool(self.kind) and self.kind == other.kind and self.plain < other.plain

    def __le__(self, other: "_Operand") -> bool:
        return self < other or self == other

    def __add__(self, other: "_Operand") -> "_Operand":
        if self.kind != "N" or other.kind != "N":
            raise _invalid("the sum of something that is no number, or not there")
        return _Operand({"N": str(self.plain + other.plain)})


def _any_of(*options: _Operand) -> tuple[_Operand, ...]:
    return options


def _attribute_exists(operand: _Operand) -> bool:
    return operand.typed is not None


def _attribute_not_exists(operand: _Operand) -> bool:
    return operand.typed is None


def _if_not_exists(operand: _Operand, default: _Operand) -> _Operand:
    return default if operand.typed is None else operand


def _at(item: Item, names: _Names, first: str, *steps: str) -> _Operand:
    """What the path leads to, through maps."""
    value = item.get(names.get(first, first))
    for step in steps:
        value = value.get("M", {}).get(names.get(step, step)) if value is not None else None
    return _Operand(value)


def _spelled(token: str) -> str:
    """The token in Python."""
    if token in _FUNCTIONS:
        return f"_{token}"
    if token.startswith(":"):
        return f"_Operand(values[{token!r}])"
    if token.lstrip("#")[0].isalpha() and token.upper() not in _PYTHON:
        return f"_at(item, names, {', '.join(map(repr, token.split('.')))})"
    return _PYTHON.get(token.upper(), token)


def _compiled(expression: str) -> _Compiled:
    """Raises ValueError, SyntaxError or TypeError if it is not known here."""
    source, place, end = "", 0, len(expression.rstrip())
    while place < end:
        token = _TOKEN.match(expression, place)
        if token is None:
            raise ValueError(f"not known here: {expression}")
        source, place = f"{source} {_spelled(token[1])}", token.end()
    compiled: _Compiled = eval(f"lambda item, names, values: ({source})", globals())  # noqa: S307  # Of these tokens.
    return compiled


@lru_cache
def _condition(expression: str) -> _Compiled:
    return _compiled(expression)


def _holds(kind: str, given: Mapping[str, Any], item: Item | None) -> bool:
    """Whether the request's condition of this kind holds of the item; a request without one is not restricted."""
    if kind not in given:
        return True
    names, values = given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {})
    return bool(_condition(given[kind])(item or {}, names, values))


@lru_cache
def _changes(expression: str) -> list[tuple[list[str], _Compiled | None]]:
    """Each path, and what it is set to; None if it is removed."""
    changes: list[tuple[list[str], _Compiled | None]] = []
    before, *clauses = _CLAUSE.split(expression)
    for clause, actions in zip(clauses[::2], clauses[1::2], strict=True):
        for action in _COMMA.split(actions):
            path, _, value = action.strip().partition(" ")
            if clause == "REMOVE":
                changes.append((path.split("."), None))
            elif clause == "ADD":
                changes.append((path.split("."), _compiled(f"if_not_exists({path}, :0) + {value}")))
            else:
                changes.append((path.split("."), _compiled(value.lstrip().removeprefix("="))))
    if before.strip() or not changes:
        raise ValueError(f"not known here: {expression}")
    return changes


def _updated(old: Item, given: Mapping[str, Any]) -> Item:
    """A copy of the item with the changes. Every value is computed from the item as it was before."""
    names, values = given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {})
    changes = _changes(given["UpdateExpression"]) if "UpdateExpression" in given else []
    new = deepcopy(old) if any(len(path) > 1 for path, _ in changes) else dict(old)
    for path, value_of in changes:
        *steps, last = (names.get(step, step) for step in path)
        content: Any = new
        for step in steps:
            content = content.get(step, {}).get("M")
            if content is None:
                raise _invalid("the document path is invalid for update")
        if value_of is None:
            content.pop(last, None)
            continue
        value = value_of(old, names, {**values, ":0": {"N": "0"}}).typed
        if value is None:
            raise _invalid(f"{path} is set to something that is not there")
        content[last] = value
    return new


def _projected(item: Item, given: Mapping[str, Any]) -> Item:
    if "ProjectionExpression" not in given:
        return dict(item)
    names = given.get("ExpressionAttributeNames", {})
    wanted = [names.get(each.strip(), each.strip()) for each in given["ProjectionExpression"].split(",")]
    return {name: item[name] for name in wanted if name in item}


def _place(item: Mapping[str, Value], by: Sequence[str]) -> tuple[Any, ...]:
    """Where it is listed."""
    return tuple([_Operand(item[name]).plain for name in by])
