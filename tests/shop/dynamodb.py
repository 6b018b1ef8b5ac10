"""DynamoDB in memory, behind boto3's client: the stores above it are the deployed ones, expressions included.

It knows the operations and the expressions that are used here, and refuses all others. tests/contract holds it to the
same behaviour as DynamoDB Local. `Io` is how the simulation gets in between.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, Protocol

from botocore.exceptions import ClientError, ReadTimeoutError

Value = dict[str, Any]
Item = dict[str, Value]


class Io(Protocol):
    """What each request of a worker passes through."""

    def now(self) -> int: ...

    def pause(self, where: str) -> None:
        """The worker has reached a boundary; others may run, time may pass, and it may never come back."""

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        """Which of these faults happens here, if any."""

    def happens(self, what: str) -> bool:
        """Whether something that is allowed at any time happens now."""

    def met(self, what: str) -> None:
        """Something that is worth counting has happened."""

    def pass_time(self, seconds: int) -> None:
        """So much time goes by."""

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        """An item was written, or deleted (None)."""


class NoFaults:
    """A world in which nothing comes in between."""

    def __init__(self, now: int = 0) -> None:
        self.time = now

    def now(self) -> int:
        return self.time

    def pause(self, where: str) -> None:
        pass

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        return None

    def happens(self, what: str) -> bool:
        return True

    def met(self, what: str) -> None:
        pass

    def pass_time(self, seconds: int) -> None:
        self.time += seconds

    def wrote(self, table: str, old: Item | None, new: Item | None) -> None:
        pass


class Faults(NoFaults):
    """A world in which these faults happen, each at the next request of its kind."""

    def __init__(self, now: int = 0, **faults: str) -> None:
        super().__init__(now)
        self.faults = faults
        """By the request as `stripe_confirm` or `dynamodb_UpdateItem`."""
        self.will_happen = True

    def fault(self, where: str, kinds: Sequence[str]) -> str | None:
        kind = self.faults.get(where.replace(" ", "_"))
        if kind not in kinds:
            return None
        del self.faults[where.replace(" ", "_")]
        return kind

    def happens(self, what: str) -> bool:
        return self.will_happen


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


def _invalid(operation: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": "ValidationException", "Message": message}}, operation)


def _order_of(item: Mapping[str, Value], by: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_number(item[name]) if "N" in item[name] else next(iter(item[name].values())) for name in by)


def _projected(item: Item, given: Mapping[str, Any]) -> Item:
    if "ProjectionExpression" not in given:
        return dict(item)
    names = given.get("ExpressionAttributeNames", {})
    wanted = [names.get(each.strip(), each.strip()) for each in given["ProjectionExpression"].split(",")]
    return {name: item[name] for name in wanted if name in item}


_EXPRESSIONS = (
    *("ConditionExpression", "UpdateExpression", "KeyConditionExpression"),
    *("FilterExpression", "ProjectionExpression"),
)


@lru_cache
def _placeholders(expressions: tuple[str, ...]) -> frozenset[str]:
    return frozenset(found for expression in expressions for found in re.findall(r"[:#][A-Za-z0-9_]+", expression))


def _refuse_what_is_unused(given: Mapping[str, Any]) -> None:
    """DynamoDB refuses names and values that no expression uses, and placeholders that are not defined."""
    used = _placeholders(tuple([given[name] for name in _EXPRESSIONS if name in given]))
    defined = given.get("ExpressionAttributeNames", {}).keys() | given.get("ExpressionAttributeValues", {}).keys()
    if used != defined:
        raise _invalid("Validation", f"unused or undefined in expressions: {sorted(used ^ defined)}")


@dataclass
class MemoryDynamoDB:
    """`boto3.client("dynamodb")` with tables in memory; `keys` names the key attributes of each table."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    io: Io = field(default_factory=NoFaults)
    indexes: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """For each table its global secondary indexes, with their key attributes; an item without them is not in it."""
    projections: dict[tuple[str, str | None], set[str]] = field(default_factory=dict)
    """The attributes that an index has, if not all."""
    tables: dict[str, dict[tuple[str, ...], Item]] = field(default_factory=dict)
    ignored_conditions: list[str] = field(default_factory=list)
    """Parts of conditions that are left out: how the simulation breaks the protocol on purpose."""
    transactions: set[str] = field(default_factory=set)
    """The ClientRequestTokens of those that were made: sent again, they change nothing."""
    exceptions = SimpleNamespace(
        ConditionalCheckFailedException=ConditionalCheckFailed,
        TransactionCanceledException=TransactionCanceled,
    )

    # ------------------------------------------------------------ the client

    def create_table(self, *, TableName: str, KeySchema: Any, GlobalSecondaryIndexes: Any = (), **_: Any) -> None:
        def names(schema: Any) -> tuple[str, ...]:
            return tuple(each["AttributeName"] for each in schema)

        keys = names(KeySchema)
        self.keys = {**self.keys, TableName: keys}
        indexes = {each["IndexName"]: names(each["KeySchema"]) for each in GlobalSecondaryIndexes}
        self.indexes = {**self.indexes, TableName: indexes}
        for each in GlobalSecondaryIndexes:
            if each["Projection"]["ProjectionType"] != "ALL":
                others = each["Projection"].get("NonKeyAttributes", ())
                self.projections[TableName, each["IndexName"]] = {*keys, *indexes[each["IndexName"]], *others}

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
                raise _invalid("BatchGetItem", "no keys, too many, or one of them twice")
            if len(keys) > 1 and self.io.fault("dynamodb BatchGetItem", ("unprocessed",)):
                left[name] = {**given, "Keys": keys[1:]}
                keys = keys[:1]
            found = [self._table(name).get(self._key(name, key)) for key in keys]
            responses[name] = [dict(item) for item in found if item is not None]
        self._after("BatchGetItem")
        return {"Responses": responses, "UnprocessedKeys": left}

    def scan(self, **given: Any) -> dict[str, Any]:
        _refuse_what_is_unused(given)
        return self._read_on("Scan", given, lambda *_: True)

    def get_paginator(self, operation: str) -> Any:
        """As botocore's: `paginate` yields one page after the other."""

        def paginate(**given: Any) -> Iterator[dict[str, Any]]:
            page = getattr(self, operation)(**given)
            yield page
            while "LastEvaluatedKey" in page:
                page = getattr(self, operation)(**given, ExclusiveStartKey=page["LastEvaluatedKey"])
                yield page

        return SimpleNamespace(paginate=paginate)

    def query(self, **given: Any) -> dict[str, Any]:
        _refuse_what_is_unused(given)
        return self._read_on("Query", given, _condition(given["KeyConditionExpression"]))

    def _read_on(self, operation: str, given: Mapping[str, Any], key_condition: "_Condition") -> dict[str, Any]:
        """A page in the order of the keys; the limit counts what the filter leaves out, too."""
        self._before(operation)
        name = given["TableName"]
        index = given.get("IndexName")
        of_table = self.keys[name]
        by = (*self.indexes[name][index], *of_table) if index else of_table
        expressions = (given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {}))
        items = [
            (_order_of(item, by), item)
            for item in self._table(name).values()
            if all(attribute in item for attribute in by) and key_condition(item, *expressions)
        ]
        backwards = given.get("ScanIndexForward") is False
        items.sort(key=itemgetter(0), reverse=backwards)
        if "ExclusiveStartKey" in given:
            start = _order_of(given["ExclusiveStartKey"], by)
            items = [each for each in items if (each[0] < start if backwards else each[0] > start)]
        read = [item for _, item in items[: given.get("Limit")]]
        visible = self.projections.get((name, index))
        shown = [{at: item[at] for at in item.keys() & visible} for item in read] if visible else read
        if "FilterExpression" in given:
            shown = [item for item in shown if _condition(given["FilterExpression"])(item, *expressions)]
        answer: dict[str, Any] = {
            "Items": [_projected(item, given) for item in shown],
            "Count": len(shown),
            "ScannedCount": len(read),
        }
        if len(read) < len(items):
            answer["LastEvaluatedKey"] = {attribute: read[-1][attribute] for attribute in by}
        self._after(operation)
        return answer

    def put_item(self, **given: Any) -> dict[str, Any]:
        return self._write("PutItem", given)

    def update_item(self, **given: Any) -> dict[str, Any]:
        return self._write("UpdateItem", given)

    def delete_item(self, **given: Any) -> dict[str, Any]:
        return self._write("DeleteItem", given)

    def transact_write_items(
        self, *, TransactItems: Sequence[Mapping[str, Any]], ClientRequestToken: str | None = None
    ) -> dict[str, Any]:
        if self._before("TransactWriteItems", ("throttled", "transaction conflict")) == "transaction conflict":
            raise self._canceled([{"Code": "TransactionConflict"} for _ in TransactItems])
        actions = [(name, dict(given)) for action in TransactItems for name, given in action.items()]
        for _, given in actions:
            _refuse_what_is_unused(given)
        places = [(given["TableName"], self._key_given(given)) for _, given in actions]
        if len(set(places)) < len(places):
            raise _invalid("TransactWriteItems", "Transaction request cannot include multiple operations on one item")
        if ClientRequestToken in self.transactions:
            self._after("TransactWriteItems")
            return {}
        reasons = [self._refusal(given) for _, given in actions]
        if any(reasons):
            raise self._canceled([reason or {"Code": "None"} for reason in reasons])
        for name, given in actions:
            self._apply(f"{name}Item", given)
        if ClientRequestToken:
            self.transactions.add(ClientRequestToken)
        self._after("TransactWriteItems")
        return {}

    # ------------------------------------------------------------ one write

    def _write(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        _refuse_what_is_unused(given)
        self._before(operation)
        refusal = self._refusal(given)
        if refusal is not None:
            self._after(operation)
            raise _error(
                ConditionalCheckFailed,
                operation,
                "ConditionalCheckFailedException",
                **({"Item": refusal["Item"]} if "Item" in refusal else {}),
            )
        old = self._table(given["TableName"]).get(self._key_given(given))
        new = self._apply(operation, given)
        if self._after(operation, SENT_AGAIN) == SENT_AGAIN:
            return self._write(operation, given)
        wanted = given.get("ReturnValues")
        returned = {"ALL_NEW": new, "ALL_OLD": old}.get(wanted) if wanted else None
        return {"Attributes": dict(returned)} if returned is not None else {}

    def _refusal(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        condition = given.get("ConditionExpression")
        if condition is None:
            return None
        for ignored in self.ignored_conditions:
            condition = condition.replace(ignored, "")
        if not condition.strip():
            return None
        table = given["TableName"]
        item = self._table(table).get(self._key_given(given))
        holds = _condition(condition)(
            item or {}, given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {})
        )
        if holds:
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
            new = {**(old or given["Key"])}
            if "UpdateExpression" in given:
                _update(given["UpdateExpression"])(
                    new, given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {})
                )
            if any(new.get(attribute) != given["Key"][attribute] for attribute in self.keys[name]):
                raise _invalid(operation, "Cannot update an attribute that is part of the key")
        if new is None:
            table.pop(key, None)
        else:
            table[key] = new
        self.io.wrote(name, old, new)
        return new

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

    def _canceled(self, reasons: list[dict[str, Any]]) -> ClientError:
        self._after("TransactWriteItems")
        return _error(
            TransactionCanceled, "TransactWriteItems", "TransactionCanceledException", CancellationReasons=reasons
        )


# ---------------------------------------------------------------- expressions, compiled once each

_Names = Mapping[str, str]
_Values = Mapping[str, Value]
_Condition = Callable[[Item, _Names, _Values], bool]
_Operand = Callable[[Item, _Names, _Values], Value | None]

_TOKEN = re.compile(r"\s*(<=|>=|<>|[()=<>,+.-]|[:#][A-Za-z0-9_]+|[A-Za-z_][A-Za-z0-9_]*)")


def _number(value: Value) -> Decimal | int:
    text = value["N"]
    return int(text) if text.lstrip("-").isdigit() else Decimal(text)


def _same(left: Value, right: Value) -> bool:
    return (_number(left) == _number(right)) if "N" in left and "N" in right else left == right


def _less(left: Value, right: Value) -> bool:
    if "N" in left and "N" in right:
        return _number(left) < _number(right)
    return "S" in left and "S" in right and left["S"] < right["S"]


def _contains(whole: Value, part: Value) -> bool:
    """Whether it is an element of the list."""
    return any(_same(each, part) for each in whole["L"])


_COMPARE: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": _same,
    "<": _less,
    ">": lambda left, right: _less(right, left),
    "<=": lambda left, right: _less(left, right) or _same(left, right),
    ">=": lambda left, right: _less(right, left) or _same(left, right),
}


_Path = tuple[str, ...]


def _if_not_exists(path: _Operand, default: _Operand) -> _Operand:
    return lambda *given: present if (present := path(*given)) is not None else default(*given)


def _added(path: _Path, operand: _Operand) -> _Operand:
    """The number at the path, or 0, and this one together."""

    def add(item: Item, names: _Names, values: _Values) -> Value:
        present, more = _at(item, path, names) or {"N": "0"}, operand(item, names, values) or {}
        return {"N": str(_number(present) + _number(more))}

    return add


def _named(step: str, names: _Names) -> str:
    return names[step] if step.startswith("#") else step


def _at(item: Item, path: _Path, names: _Names) -> Value | None:
    """What the path leads to, through maps."""
    first, *steps = (_named(step, names) for step in path)
    value = item.get(first)
    for step in steps:
        value = value.get("M", {}).get(step) if value is not None else None
    return value


def _put(item: Item, path: _Path, names: _Names, value: Value) -> None:
    """Everything on the way to the last step must be there."""
    content = item
    for step in path[:-1]:
        inside = content.get(_named(step, names), {}).get("M")
        if inside is None:
            raise _invalid("UpdateItem", "The document path provided in the update expression is invalid for update")
        content = inside
    content[_named(path[-1], names)] = value


class _Parser:
    """Recursive descent through one expression."""

    def __init__(self, expression: str) -> None:
        self.tokens: list[str] = []
        place, end = 0, len(expression.rstrip())
        while place < end:
            match = _TOKEN.match(expression, place)
            if match is None:
                raise ValueError(f"not an expression that is known here: {expression}")
            self.tokens.append(match[1])
            place = match.end()
        self.tokens.append("")

    def take(self, *expected: str) -> str | None:
        """The next token, if it is one of these (any, if none is given)."""
        if expected and self.tokens[0].upper() not in expected:
            return None
        return self.tokens.pop(0)

    def must(self, expected: str) -> None:
        if self.take(expected) is None:
            raise ValueError(f"expected {expected!r} before {self.tokens}")

    # condition := all { OR all } ; all := one { AND one }

    def condition(self) -> _Condition:
        parts = [self.all_of()]
        while self.take("OR"):
            parts.append(self.all_of())
        return parts[0] if len(parts) == 1 else lambda *given: any(part(*given) for part in parts)

    def all_of(self) -> _Condition:
        parts = [self.one()]
        while self.take("AND"):
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else lambda *given: all(part(*given) for part in parts)

    def one(self) -> _Condition:
        if self.take("NOT"):
            negated = self.one()
            return lambda *given: not negated(*given)
        if self.take("("):
            inner = self.condition()
            self.must(")")
            return inner
        if function := self.take("ATTRIBUTE_EXISTS", "ATTRIBUTE_NOT_EXISTS"):
            [operand] = self.in_brackets()
            wanted = function.lower() == "attribute_exists"
            return lambda *given: (operand(*given) is not None) is wanted
        if self.take("CONTAINS"):
            whole, part = self.in_brackets()
            return lambda *given: _both(_contains, whole, part, given)
        return self.comparison()

    def comparison(self) -> _Condition:
        left = self.operand()
        if self.take("IN"):
            options = self.in_brackets()
            return lambda *given: any(_both(_same, left, option, given) for option in options)
        if self.take("<>"):
            other = self.operand()
            # What is not there differs from everything.
            return lambda *given: not _both(_same, left, other, given)
        compare = _COMPARE[self.take(*_COMPARE) or ""]
        right = self.operand()
        return lambda *given: _both(compare, left, right, given)

    def in_brackets(self) -> list[_Operand]:
        self.must("(")
        options = [self.operand()]
        while self.take(","):
            options.append(self.operand())
        self.must(")")
        return options

    # sum := operand [ + | - operand ] ; operand := :value | path | if_not_exists(path, operand)
    # path := name { .name }

    def operand(self) -> _Operand:
        token = self.tokens[0].lower()
        if self.take("IF_NOT_EXISTS"):
            path, default = self.in_brackets()
            return _if_not_exists(path, default)
        if token.startswith(":"):
            value = self.take() or ""
            return lambda _, __, values: values[value]
        steps = self.path()
        if len(steps) > 1:
            return lambda item, names, _: _at(item, steps, names)
        [name] = steps
        if name.startswith("#"):
            return lambda item, names, _: item.get(names[name])
        return lambda item, _, __: item.get(name)

    def path(self) -> "_Path":
        steps = [self.take() or ""]
        while self.take("."):
            steps.append(self.take() or "")
        return tuple(steps)

    def sum(self) -> _Operand:
        left = self.operand()
        sign = self.take("+", "-")
        if sign is None:
            return left
        right, factor = self.operand(), 1 if sign == "+" else -1

        def add(*given: Any) -> Value:
            one, other = left(*given), right(*given)
            if one is None or other is None:
                raise _invalid("UpdateItem", "the sum of something that is not there")
            return {"N": str(_number(one) + factor * _number(other))}

        return add

    # update := { SET path = sum, … | REMOVE name, … | ADD name number }

    def update(self) -> list[tuple["_Path", _Operand | None]]:
        """Each path with what it is set to; with None, if it is removed."""
        changes: list[tuple[_Path, _Operand | None]] = []
        while clause := self.take("SET", "REMOVE", "ADD"):
            while True:
                path, operand = self.path(), None
                if clause.upper() == "SET":
                    self.must("=")
                    operand = self.sum()
                elif clause.upper() == "ADD":
                    operand = _added(path, self.operand())
                elif len(path) > 1:
                    raise ValueError(f"REMOVE within a map is not known here: {path}")
                changes.append((path, operand))
                if not self.take(","):
                    break
        return changes

    def end(self) -> None:
        if self.tokens != [""]:
            raise ValueError(f"not known here: {self.tokens}")


def _both(
    compare: Callable[[Value, Value], bool], left: _Operand, right: _Operand, given: tuple[Item, _Names, _Values]
) -> bool:
    one, other = left(*given), right(*given)
    return one is not None and other is not None and compare(one, other)


@lru_cache
def _condition(expression: str) -> _Condition:
    parser = _Parser(expression)
    condition = parser.condition()
    parser.end()
    return condition


@lru_cache
def _update(expression: str) -> Callable[[Item, _Names, _Values], None]:
    parser = _Parser(expression)
    changes = parser.update()
    parser.end()
    is_nested = any(len(path) > 1 for path, _ in changes)

    def update(item: Item, names: _Names, values: _Values) -> None:
        if is_nested:
            # What the item was before is still held by others: by the table, until all of this has succeeded.
            item.update(deepcopy(item))
        # Every right side sees the item as it was before.
        new = [(path, operand is not None, operand and operand(item, names, values)) for path, operand in changes]
        for path, is_set, value in new:
            if not is_set:
                item.pop(_named(path[0], names), None)
            elif value is None:
                raise _invalid("UpdateItem", f"{path} is set to something that is not there")
            else:
                _put(item, path, names, value)

    return update
