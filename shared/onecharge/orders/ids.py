"""The ids of orders: an HMAC under a secret key, so that nobody outside can compute one.

    secret ─► GuardedKey.ids ─► its fingerprint is the recorded one? ─► OrderIds.of(customer, idempotency key)

The same order has the same id for ever: that is what makes a client's retry find its order, and not place a second one.
So the key never changes. A key that did change (a rotation, a secret that was put anew) would give each retry another
id, and its customer a second charge. The guard refuses to make ids then: nothing is ordered until the key is back.
"""

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from onecharge.runtime.dynamodb import to_item

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEY_LENGTH_MIN = 32
"""Characters. The template's secret has 64: a shorter one was put by hand, and not for this."""

_GUARD_ID = "order-id-key"
_FINGERPRINT_OF = b"onecharge: fingerprint of the order id key"
"""No JSON, so that it is no order's HMAC."""


class OrderIdKeyChanged(Exception):
    """The key is not the one that the ids of the stored orders derive from. No order may be placed with it."""


@dataclass(frozen=True)
class OrderIds:
    """Makes order ids with this key."""

    key: bytes = field(repr=False)

    def of(self, *what: str) -> str:
        """The id of the order that is placed for this: always the same, so that the order is placed once.

        A customer's order has two parts, the customer id and the idempotency key. Whatever else places orders has
        another number of parts, so the ids never collide, whatever key is chosen. 128 bits of HMAC-SHA256.
        """
        return f"ord_{self._hmac(json.dumps(what).encode())}"

    @property
    def fingerprint(self) -> str:
        """Distinguishes one key from another, and reveals nothing of it."""
        return self._hmac(_FINGERPRINT_OF)

    def _hmac(self, message: bytes) -> str:
        return hmac.new(self.key, message, hashlib.sha256).hexdigest()[:32]


class GuardedKey:
    """The key of this execution environment, compared once with the one that the first order was placed with.

    The first use of all records the key's fingerprint with one conditional write, before any order is stored. Every
    later execution environment makes the same write, is refused, and compares: one request, whoever comes first.
    """

    def __init__(
        self,
        client: "DynamoDBClient",
        table: str,
        *,
        read_key: Callable[[], str],
        clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._table = table
        self._read_key = read_key
        self._clock = clock
        self._ids: OrderIds | None = None

    def ids(self) -> OrderIds:
        """The same as long as the execution environment lives, whatever becomes of the secret meanwhile.

        Raises:
            OrderIdKeyChanged: no order may be placed. Each call tries again, so that it ends when the key is back.
            BotoCoreError, ClientError: the fingerprint cannot be compared: an outage. And whatever `read_key` raises.
        """
        if self._ids is None:
            ids = self.read()
            if self._record(ids.fingerprint) != ids.fingerprint:
                raise OrderIdKeyChanged
            self._ids = ids
        return self._ids

    def read(self) -> OrderIds:
        """What the key makes, compared with nothing: no order may be placed with it. Raises as `ids`."""
        key = self._read_key().strip()
        if len(key) < KEY_LENGTH_MIN:
            raise OrderIdKeyChanged
        return OrderIds(key.encode())

    def check(self) -> None:
        """Compare the key as it is now, and record nothing. Raises as `ids`."""
        answer = self._client.get_item(TableName=self._table, Key=to_item({"id": _GUARD_ID}), ConsistentRead=True)
        if answer.get("Item", {}).get("fingerprint", {}).get("S") not in (None, self.read().fingerprint):
            raise OrderIdKeyChanged

    def _record(self, fingerprint: str) -> str:
        """Returns the fingerprint that is recorded: this one if there was none."""
        item = {"id": _GUARD_ID, "fingerprint": fingerprint, "recorded_at": self._clock().isoformat()}
        try:
            self._client.put_item(
                TableName=self._table,
                Item=to_item(item),
                ConditionExpression="attribute_not_exists(id)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self._client.exceptions.ConditionalCheckFailedException as refused:
            return str(refused.response["Item"]["fingerprint"]["S"])  # type: ignore[typeddict-item]  # with ALL_OLD
        return fingerprint
