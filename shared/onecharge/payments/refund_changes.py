"""What becomes of a refund's row that is claimed, and what one write changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from onecharge.payments.refund_rules import Refund
from onecharge.runtime.dynamodb import set_expression


@dataclass(frozen=True)
class Claimed:
    """The row is ours until its lease expires."""

    row: Refund


@dataclass(frozen=True)
class HeldByAnother:
    """Another delivery of the same refund holds the row until then, in epoch seconds."""

    lease_expires_at: int
    row: Refund | None = field(default=None, compare=False)
    """As it was when it refused the claim."""


@dataclass(frozen=True)
class AlreadyEnded:
    """The refund has ended: this delivery is a duplicate."""

    row: Refund


type Claim = Claimed | HeldByAnother | AlreadyEnded


@dataclass(frozen=True)
class Changes:
    """What one write changes."""

    sets: Mapping[str, str] = field(default_factory=dict)
    """Each attribute and its new value, as an update expression has them."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The expression's values, by their names without the colon."""
    removes: Sequence[str] = ()

    @classmethod
    def to(cls, values: Mapping[str, Any], *, removes: Sequence[str] = ()) -> Self:
        """Each attribute gets its value; one whose value is None stays as it is."""
        given = {name: value for name, value in values.items() if value is not None}
        return cls({"#state" if name == "state" else name: f":{name}" for name in given}, given, removes)

    @classmethod
    def to_exactly(cls, values: Mapping[str, Any]) -> Self:
        """Each attribute gets its value; one whose value is None is removed."""
        return cls.to(values, removes=[name for name, value in values.items() if value is None])

    def __or__(self, more: Self) -> Self:
        """Both in one write."""
        sets, values = {**self.sets, **more.sets}, {**self.values, **more.values}
        return replace(self, sets=sets, values=values, removes=(*self.removes, *more.removes))

    @property
    def expression(self) -> str:
        """The update expression."""
        return set_expression(self.sets) + (f" REMOVE {', '.join(self.removes)}" if self.removes else "")
