"""DynamoDB in memory, behind boto3's client: what stands above it is the deployed ledger, expressions and all.

It knows the operations and the expressions that are used here, and refuses all others. tests/contract holds it to the
same behaviour as moto, ministack and DynamoDB Local. `Io` is how the simulation gets in between.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Protocol

from botocore.exceptions import ClientError, ReadTimeoutError

Value = dict[str, Any]
Item = dict[str, Value]


class Io(Protocol):
    """What stands between a worker and the world."""

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


class ConditionalCheckFailed(ClientError):
    """The condition does not hold; carries the item with ALL_OLD."""


class TransactionCanceled(ClientError):
    """One of the conditions does not hold; carries a reason for each action."""


def _error(kind: type[ClientError], operation: str, code: str, **details: Any) -> ClientError:
    return kind({"Error": {"Code": code, "Message": code}, **details}, operation)  # type: ignore[arg-type]


@dataclass
class MemoryDynamoDB:
    """`boto3.client("dynamodb")` with tables in memory; `keys` names the key attributes of each table."""

    keys: Mapping[str, tuple[str, ...]]
    io: Io = field(default_factory=NoFaults)
    tables: dict[str, dict[tuple[str, ...], Item]] = field(default_factory=dict)
    ignored_conditions: list[str] = field(default_factory=list)
    """Parts of conditions that are left out: how the simulation breaks the protocol on purpose."""
    exceptions = SimpleNamespace(
        ConditionalCheckFailedException=ConditionalCheckFailed,
        TransactionCanceledException=TransactionCanceled,
    )

    # ------------------------------------------------------------ the client

    def get_item(self, **given: Any) -> dict[str, Any]:
        self._before("GetItem")
        item = self._table(given["TableName"]).get(self._key(given["TableName"], given["Key"]))
        self._after("GetItem")
        return {"Item": dict(item)} if item is not None else {}

    def scan(self, **given: Any) -> dict[str, Any]:
        return self._read_on("Scan", given, lambda *_: True)

    def query(self, **given: Any) -> dict[str, Any]:
        return self._read_on("Query", given, _condition(given["KeyConditionExpression"]))

    def _read_on(self, operation: str, given: Mapping[str, Any], key_condition: "_Condition") -> dict[str, Any]:
        """A page in the order of the keys; the limit counts what the filter leaves out, too."""
        self._before(operation)
        name = given["TableName"]
        table = self._table(name)
        start = given.get("ExclusiveStartKey")
        expressions = (given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {}))
        after = sorted(
            key
            for key, item in table.items()
            if (start is None or key > self._key(name, start)) and key_condition(item, *expressions)
        )
        read = after[: given.get("Limit")]
        shown = [dict(table[key]) for key in read]
        if "FilterExpression" in given:
            shown = [item for item in shown if _condition(given["FilterExpression"])(item, *expressions)]
        answer: dict[str, Any] = {"Items": shown}
        if len(read) < len(after):
            answer["LastEvaluatedKey"] = {attribute: table[read[-1]][attribute] for attribute in self.keys[name]}
        self._after(operation)
        return answer

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
        reasons = [self._refusal(given) for _, given in actions]
        if any(reasons):
            raise self._canceled([reason or {"Code": "None"} for reason in reasons])
        for name, given in actions:
            if name != "ConditionCheck":
                self._apply(f"{name}Item", given)
        self._after("TransactWriteItems")
        return {}

    # ------------------------------------------------------------ one write

    def _write(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
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
        new = self._apply(operation, given)
        self._after(operation)
        return {"Attributes": dict(new)} if new is not None and given.get("ReturnValues") == "ALL_NEW" else {}

    def _refusal(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        condition = given.get("ConditionExpression")
        if condition is None:
            return None
        for ignored in self.ignored_conditions:
            condition = condition.replace(ignored, "")
        if not condition.strip():
            return None
        table = given["TableName"]
        item = self._table(table).get(self._key(table, given.get("Key") or given["Item"]))
        holds = _condition(condition)(
            item or {}, given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {})
        )
        if holds:
            return None
        shown = item is not None and given.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        return {"Code": "ConditionalCheckFailed", **({"Item": dict(item or {})} if shown else {})}

    def _apply(self, operation: str, given: Mapping[str, Any]) -> Item | None:
        name = given["TableName"]
        table, key = self._table(name), self._key(name, given.get("Key") or given["Item"])
        old = table.get(key)
        new: Item | None = None
        if operation == "PutItem":
            new = dict(given["Item"])
        elif operation == "UpdateItem":
            new = {**(old or given["Key"])}
            _update(given["UpdateExpression"])(
                new, given.get("ExpressionAttributeNames", {}), given.get("ExpressionAttributeValues", {})
            )
        if new is None:
            table.pop(key, None)
        else:
            table[key] = new
        self.io.wrote(name, old, new)
        return new

    def _table(self, name: str) -> dict[tuple[str, ...], Item]:
        return self.tables.setdefault(name, {})

    def _key(self, table: str, item: Mapping[str, Value]) -> tuple[str, ...]:
        return tuple([value for name in self.keys[table] for value in item[name].values()])

    def _before(self, operation: str, kinds: Sequence[str] = ("throttled",)) -> str | None:
        self.io.pause(f"dynamodb {operation}")
        kind = self.io.fault(f"dynamodb {operation}", kinds)
        if kind == "throttled":
            raise _error(ClientError, operation, "ProvisionedThroughputExceededException")
        return kind

    def _after(self, operation: str) -> None:
        if self.io.fault(f"dynamodb {operation}", ("answer lost",)):
            raise ReadTimeoutError(endpoint_url="memory")
        self.io.pause(f"dynamodb {operation} answered")

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

_TOKEN = re.compile(r"\s*(<=|>=|<>|[()=<>,+-]|[:#]?[A-Za-z_][A-Za-z0-9_]*)")


def _number(value: Value) -> Decimal | int:
    text = value["N"]
    return int(text) if text.lstrip("-").isdigit() else Decimal(text)


def _same(left: Value, right: Value) -> bool:
    return (_number(left) == _number(right)) if "N" in left and "N" in right else left == right


def _less(left: Value, right: Value) -> bool:
    if "N" in left and "N" in right:
        return _number(left) < _number(right)
    return "S" in left and "S" in right and left["S"] < right["S"]


_COMPARE: Mapping[str, Callable[[Value, Value], bool]] = {
    "=": _same,
    "<>": lambda left, right: not _same(left, right),
    "<": _less,
    ">": lambda left, right: _less(right, left),
    "<=": lambda left, right: _less(left, right) or _same(left, right),
    ">=": lambda left, right: _less(right, left) or _same(left, right),
}


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
            self.must("(")
            operand, wanted = self.operand(), function.lower() == "attribute_exists"
            self.must(")")
            return lambda *given: (operand(*given) is not None) is wanted
        return self.comparison()

    def comparison(self) -> _Condition:
        left = self.operand()
        if self.take("IN"):
            options = self.in_brackets()
            return lambda *given: any(_both(_same, left, option, given) for option in options)
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

    # operand := :value | path | if_not_exists(path, operand), each with + or - another

    def operand(self) -> _Operand:
        token = self.take() or ""
        if token.lower() == "if_not_exists":
            path, default = self.in_brackets()
            return lambda *given: present if (present := path(*given)) is not None else default(*given)
        if token.startswith(":"):
            return lambda _, __, values: values[token]
        if token.startswith("#"):
            return lambda item, names, _: item.get(names[token])
        return lambda item, _, __: item.get(token)

    def sum(self) -> _Operand:
        left = self.operand()
        sign = self.take("+", "-")
        if sign is None:
            return left
        right, factor = self.operand(), 1 if sign == "+" else -1

        def add(*given: Any) -> Value:
            one, other = left(*given), right(*given)
            if one is None or other is None:
                raise ValueError("the sum of something that is not there")
            return {"N": str(_number(one) + factor * _number(other))}

        return add

    # update := { SET path = sum, … | REMOVE path, … }

    def update(self) -> tuple[list[tuple[str, _Operand]], list[str]]:
        sets: list[tuple[str, _Operand]] = []
        removes: list[str] = []
        while clause := self.take("SET", "REMOVE"):
            while True:
                path = self.take() or ""
                if clause.upper() == "SET":
                    self.must("=")
                    sets.append((path, self.sum()))
                else:
                    removes.append(path)
                if not self.take(","):
                    break
        return sets, removes

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
    sets, removes = parser.update()
    parser.end()

    def update(item: Item, names: _Names, values: _Values) -> None:
        # Every right side sees the item as it was before.
        new = [(names.get(path, path), operand(item, names, values)) for path, operand in sets]
        for name, value in new:
            if value is None:
                raise ValueError(f"{name} is set to something that is not there")
            item[name] = value
        for path in removes:
            item.pop(names.get(path, path), None)

    return update
