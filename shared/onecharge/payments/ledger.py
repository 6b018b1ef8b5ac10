"""The Charges table: one row for each attempt to charge an order, the truth about it.

claim     one conditional write: a new row, or one whose lease has expired; the fencing token grows
settle    one conditional write on the fencing token: a worker that lost its lease changes nothing

          claim                      settle
CLAIMED ───┤═══════ lease ═══════════├──► SUCCEEDED │ DECLINED │ REQUIRES_ACTION │ NEEDS_REVIEW
           └ crashed worker: the lease expires, the next delivery claims the row with a higher token
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from onecharge.dynamodb import expression_values, from_item, setting, to_item
from onecharge.payments.leases import CLAIMABLE, CLAIMED, HeldByAnother, LeasedRows, LeaseLost, claiming
from onecharge.payments.protocol import ChargeRow, FrozenRequest
from onecharge.payments.time_bounds import RETENTION_SECONDS
from onecharge.states import PaymentState

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import ConditionCheckTypeDef, UpdateTypeDef


@dataclass(frozen=True)
class Claimed:
    """The row is ours until its lease expires."""

    row: ChargeRow


@dataclass(frozen=True)
class AlreadySettled:
    """Another delivery of the same order has settled the row: this one is a duplicate."""

    state: PaymentState
    fingerprint: str
    """Of the request that was charged."""
    told_at: int
    """When the table's stream last carried it, in epoch seconds."""


@dataclass(frozen=True)
class NotDeclinedBefore:
    """The attempt before this one is in this state, and not DECLINED; None if there is no such row."""

    previous: PaymentState | None


RowKey = tuple[str, int]
"""Order id and attempt."""

Claim = Claimed | HeldByAnother | AlreadySettled | NotDeclinedBefore


_CLAIM = claiming(
    {
        "amount_minor": ":amount_minor",
        "currency": ":currency",
        "stripe_parameters": ":stripe_parameters",
        "fingerprint": ":fingerprint",
        "correlation_id": ":correlation_id",
        "placed_at": ":placed_at",
        "key_generation": ":zero",
        "key_opened_at": ":placed_at",
        "expires_at": ":expires_at",
    }
)


@dataclass(frozen=True)
class Ledger(LeasedRows[ChargeRow]):
    """The Charges table through boto3's client.

    Every method makes exactly one request, but for the claim of a later attempt: a transaction, and a read.
    """

    def claim(
        self,
        request: FrozenRequest,
        *,
        correlation_id: str,
        placed_at: int,
        now: int,
        lease_seconds: int,
    ) -> Claim:
        """Claim the attempt, or say who has it. A row that exists keeps the request that it froze."""
        update: UpdateTypeDef = {
            "TableName": self.table,
            "Key": self._key(request),
            "UpdateExpression": _CLAIM,
            "ConditionExpression": CLAIMABLE,
            "ExpressionAttributeNames": {"#state": "state"},
            "ExpressionAttributeValues": expression_values(
                claimed=CLAIMED,
                lease_expires_at=now + lease_seconds,
                now=now,
                zero=0,
                one=1,
                amount_minor=request.amount_minor,
                currency=request.currency,
                stripe_parameters=request.parameters_json,
                fingerprint=request.fingerprint,
                correlation_id=correlation_id,
                placed_at=placed_at,
                expires_at=now + RETENTION_SECONDS,
            ),
            # A duplicate learns from the refusal itself what it needs to know, without a read.
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if request.attempt > 1:
            return self._claim_after_decline(request, update, now=now, lease_expires_at=now + lease_seconds)
        try:
            answer = self.client.update_item(**update, ReturnValues="ALL_NEW")
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            return _held_or_settled(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
        return Claimed(_row(answer["Attributes"]))

    def _claim_after_decline(
        self, request: FrozenRequest, update: "UpdateTypeDef", *, now: int, lease_expires_at: int
    ) -> Claim:
        """The same write, in one transaction with the check that the attempt before was declined."""
        declined_before: ConditionCheckTypeDef = {
            "TableName": self.table,
            "Key": to_item({"order_id": request.order_id, "attempt": request.attempt - 1}),
            "ConditionExpression": "#state = :declined",
            "ExpressionAttributeNames": {"#state": "state"},
            "ExpressionAttributeValues": expression_values(declined=PaymentState.DECLINED),
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        try:
            self.client.transact_write_items(TransactItems=[{"ConditionCheck": declined_before}, {"Update": update}])
        except self.client.exceptions.TransactionCanceledException as canceled:
            return _why_canceled(canceled, now=now)
        # A transaction returns no attributes.
        read = self.client.get_item(TableName=self.table, Key=self._key(request), ConsistentRead=True)
        row = _row(read["Item"])
        if row.state is not PaymentState.CLAIMED or row.lease_expires_at != lease_expires_at:
            # We were so slow that our lease expired before we read: this row, and its token, are another's by now.
            return _held_or_settled(read["Item"])
        return Claimed(row)

    def settle(
        self,
        row: ChargeRow,
        state: PaymentState,
        *,
        payment_intent_id: str | None,
        code: str | None,
        now: int,
        client_secret: str | None = None,
    ) -> None:
        """Write what the attempt came to. Raises LeaseLost if the row has been claimed again since."""
        changes = {
            "#state": ":state",
            "settled_at": ":now",
            **({"payment_intent_id": ":payment_intent_id"} if payment_intent_id else {}),
            **({"decline_code": ":decline_code"} if code else {}),
            **({"client_secret": ":client_secret"} if client_secret else {}),
        }
        self._write(
            row,
            changes,
            state=state,
            now=now,
            payment_intent_id=payment_intent_id,
            decline_code=code,
            client_secret=client_secret,
        )

    def tell_again(self, request: FrozenRequest, state: PaymentState, *, now: int) -> None:
        """Make the table's stream carry the settled row once more. A row that has moved on was told of by that."""
        with suppress(self.client.exceptions.ConditionalCheckFailedException):
            self.client.update_item(
                TableName=self.table,
                Key=self._key(request),
                UpdateExpression="SET told_again_at = :now",
                ConditionExpression="#state = :state",
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(now=now, state=state),
            )

    # ------------------------------------------------------------ for what is learned from Stripe, not from a message

    def read(self, order_id: str, attempt: int) -> ChargeRow | None:
        """The row of the attempt, as it is now."""
        key = to_item({"order_id": order_id, "attempt": attempt})
        answer = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True)
        return _row(answer["Item"]) if "Item" in answer else None

    def page(self, *, after: RowKey | None, limit: int) -> tuple[list[ChargeRow], RowKey | None]:
        """So many rows in the table's own order, after that one; and where to go on, None at the end."""
        start: dict[str, Any] = (
            {"ExclusiveStartKey": to_item({"order_id": after[0], "attempt": after[1]})} if after else {}
        )
        answer = self.client.scan(TableName=self.table, Limit=limit, **start)
        last = answer.get("LastEvaluatedKey")
        values = from_item(last) if last else None
        return [_row(item) for item in answer["Items"]], (values["order_id"], values["attempt"]) if values else None

    def take_over(self, row: ChargeRow, *, now: int, lease_seconds: int) -> ChargeRow | None:
        """Claim the row as a delivery would, if it still is as it was read and its lease has expired."""
        try:
            attributes = self._write(
                row,
                {"fencing_token": "fencing_token + :one", "lease_expires_at": ":lease_expires_at"},
                only_if="lease_expires_at <= :now",
                one=1,
                lease_expires_at=now + lease_seconds,
                now=now,
            )
        except LeaseLost:
            return None
        return _row(attributes)

    def decide(self, row: ChargeRow, state: PaymentState, *, code: str | None, now: int) -> bool:
        """Settle a REQUIRES_ACTION row as the customer's bank decided; False if that has been done already."""
        changes = {"#state": ":state", "settled_at": ":now", **({"decline_code": ":decline_code"} if code else {})}
        try:
            self.client.update_item(
                TableName=self.table,
                Key=self._key(row.request),
                UpdateExpression=setting(changes),
                ConditionExpression="#state = :requires_action",
                ExpressionAttributeNames={"#state": "state"},
                ExpressionAttributeValues=expression_values(
                    state=state, now=now, decline_code=code, requires_action=PaymentState.REQUIRES_ACTION
                ),
            )
        except self.client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def _key_of(self, row: ChargeRow) -> dict[str, Any]:
        return self._key(row.request)

    def _row_of(self, item: Mapping[str, Any]) -> ChargeRow:
        return _row(item)

    def _key(self, request: FrozenRequest) -> dict[str, Any]:
        return to_item({"order_id": request.order_id, "attempt": request.attempt})


def _row(item: Mapping[str, Any]) -> ChargeRow:
    values = from_item(item)
    return ChargeRow(
        request=FrozenRequest(
            order_id=values["order_id"],
            attempt=values["attempt"],
            amount_minor=values["amount_minor"],
            currency=values["currency"],
            parameters_json=values["stripe_parameters"],
        ),
        state=PaymentState(values["state"]),
        fencing_token=values["fencing_token"],
        lease_expires_at=values["lease_expires_at"],
        placed_at=values["placed_at"],
        key_generation=values["key_generation"],
        key_opened_at=values["key_opened_at"],
        looking_since=values.get("looking_since"),
        payment_intent_id=values.get("payment_intent_id"),
        settled_at=values.get("settled_at"),
        correlation_id=values["correlation_id"],
    )


def _held_or_settled(item: Mapping[str, Any]) -> HeldByAnother | AlreadySettled:
    old = from_item(item)
    state = PaymentState(old["state"])
    if state is PaymentState.CLAIMED:
        return HeldByAnother(old["lease_expires_at"])
    told_at = max(old["settled_at"], old.get("told_again_at", 0))
    return AlreadySettled(state, old["fingerprint"], told_at)


def _why_canceled(canceled: ClientError, *, now: int) -> HeldByAnother | AlreadySettled | NotDeclinedBefore:
    """Which of the two conditions refused; raises the error itself if it was neither."""
    before, row = canceled.response["CancellationReasons"]
    if row["Code"] == "ConditionalCheckFailed":
        return _held_or_settled(row["Item"])
    if before["Code"] == "ConditionalCheckFailed":
        old = before.get("Item")
        return NotDeclinedBefore(PaymentState(from_item(old)["state"]) if old else None)
    if "TransactionConflict" in (before["Code"], row["Code"]):
        # Another delivery is claiming at this very moment.
        return HeldByAnother(now)
    raise canceled
