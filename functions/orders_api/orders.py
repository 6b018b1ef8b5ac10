"""The Orders table as the API writes and reads it; the payment's outcomes are written by update_order.

An order is stored once, under an id that derives from its customer and idempotency key. Each attempt to pay it stores
its idempotency key in the same write, and no key is ever forgotten: a late retry replays, and never charges.

The stored item is the outbox: the table's stream carries it to publish_events, so that there is no second write
that could be lost between "stored" and "published".
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Never, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from onecharge.contract.events import ATTEMPTS_MAX, CustomerId, OrderPlacedEvent, PaymentMethodId
from onecharge.contract.money import MAX_AMOUNT_MINOR, AmountMinor, Currency, require_chargeable, require_minimum
from onecharge.contract.states import OrderStatus
from onecharge.orders.items import digest_of, expires_at, new_order_item, order_id_for, order_placed
from onecharge.runtime.dynamodb import from_item, to_item

if TYPE_CHECKING:
    from botocore.exceptions import ClientError
    from mypy_boto3_dynamodb import DynamoDBClient


BY_CUSTOMER = "by_customer"
"""The index from which a customer's orders are read; it is eventually consistent."""


class Item(BaseModel):
    """One line of an order."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    sku: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,64}$")]
    quantity: Annotated[int, Field(ge=1, le=10_000)]
    unit_amount: AmountMinor


class OrderRequest(BaseModel):
    """The body of POST /orders. Amounts are integers, in the minor unit of the currency."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    customer_id: CustomerId
    currency: Currency
    payment_method: PaymentMethodId
    items: Annotated[list[Item], Field(min_length=1, max_length=100)]

    @property
    def amount_minor(self) -> int:
        return sum(item.quantity * item.unit_amount for item in self.items)

    @property
    def fingerprint(self) -> str:
        """The same for two bodies that mean the same, whatever their white space and order of names."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @model_validator(mode="after")
    def _amount_can_be_charged(self) -> Self:
        if self.amount_minor > MAX_AMOUNT_MINOR:
            raise PydanticCustomError("amount_too_large", "The order's amount is larger than can be charged at once")
        require_chargeable(self.amount_minor, self.currency)
        require_minimum(self.amount_minor, self.currency)
        return self


class PaymentRequest(BaseModel):
    """The body of POST /orders/{order_id}/payments: another card, after the one before was declined."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    payment_method: PaymentMethodId


@dataclass(frozen=True)
class Outcome:
    """The result of one attempt: the status that it moved the order to, and why."""

    attempt: int
    status: OrderStatus
    decline_code: str | None = None
    advice_code: str | None = None


@dataclass(frozen=True)
class StoredOrder:
    """An order as it is stored."""

    order_id: str
    status: OrderStatus
    amount_minor: int
    currency: str
    fingerprint: str
    correlation_id: str
    customer_id: str
    placed_at: str
    attempt: int
    """Which attempt to pay it is the present one."""
    paid_attempt: int | None
    """Which attempt paid it: the present one, or an earlier one that succeeded late."""
    attempt_keys: Mapping[str, str]
    """The digest of every idempotency key that made an attempt, and the digest of what it was used for."""
    refused_payment_methods: tuple[str, ...]
    """Those of which the card's issuer advised not to try them again."""
    reserved_minor: int
    """The amounts of the refunds that succeeded or may succeed, together."""
    stripe_refunded_minor: int
    """What Stripe shows as refunded, by us or by hand, as far as the payment service has published it."""
    dispute_status: str | None
    outcomes: tuple[Outcome, ...]
    event: OrderPlacedEvent
    """What the present attempt was published as."""

    @property
    def refunded_minor(self) -> int:
        """What is refunded or being refunded: by our reservations, or by Stripe's figure if that is larger."""
        return max(self.reserved_minor, self.stripe_refunded_minor)

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> "StoredOrder":
        values = from_item(item)
        return cls(
            order_id=values["order_id"],
            status=OrderStatus(values["status"]),
            amount_minor=values["amount_minor"],
            currency=values["currency"],
            fingerprint=values["fingerprint"],
            correlation_id=values["correlation_id"],
            customer_id=values["customer_id"],
            placed_at=values["placed_at"],
            attempt=values["attempt"],
            paid_attempt=values.get("paid_attempt"),
            attempt_keys=values.get("attempt_keys", {}),
            refused_payment_methods=tuple(values.get("refused_payment_methods", ())),
            reserved_minor=values.get("refunded_minor", 0),
            stripe_refunded_minor=values.get("stripe_refunded_minor", 0),
            dispute_status=values.get("dispute_status"),
            outcomes=_outcomes_of(values.get("outcomes", {})),
            event=order_placed(values),
        )


def _outcomes_of(stored: Mapping[str, Mapping[str, str]]) -> tuple[Outcome, ...]:
    by_attempt = sorted((int(attempt), outcome) for attempt, outcome in stored.items())
    return tuple(
        Outcome(attempt, OrderStatus(each["status"]), each.get("decline_code"), each.get("advice_code"))
        for attempt, each in by_attempt
    )


class KeyReused(Exception):
    """The idempotency key was used for another request already."""


class NoSuchOrder(Exception):
    """There is no order of this id."""


class OrderStatusConflict(Exception):
    """The order's status does not allow this."""

    def __init__(self, order: StoredOrder) -> None:
        super().__init__(order.status)
        self.order = order


class AttemptsExhausted(Exception):
    """The order has had as many attempts as it can have."""


class PaymentMethodRefused(Exception):
    """The issuer of this card has advised not to try it again."""


@dataclass(frozen=True)
class Cursor:
    """Where a page ends: the last order on it."""

    order_id: str
    placed_at: str


@dataclass(frozen=True)
class OrderPage:
    """Some of a customer's orders, the newest first; `after` is where the next page begins, None at the end."""

    orders: tuple[StoredOrder, ...]
    unreadable: tuple[str, ...]
    """The ids of orders whose items break the schema; they are left out."""
    after: Cursor | None


@dataclass(frozen=True)
class Orders:
    """The Orders table through boto3's client. Every method makes exactly one request."""

    client: "DynamoDBClient"
    table: str

    def place(
        self, request: OrderRequest, idempotency_key: str, *, correlation_id: str, now: datetime
    ) -> tuple[StoredOrder, bool]:
        """Store the order, or find it stored by an earlier try; returns also whether it is new.

        Raises:
            KeyReused: the customer used this key before, for an order with another body.
        """
        order_id = order_id_for(request.customer_id, idempotency_key)
        item = new_order_item(
            order_id,
            request,
            correlation_id=correlation_id,
            now=now,
            items=[line.model_dump() for line in request.items],
            attempt_keys={digest_of(idempotency_key): request.fingerprint},
        )
        try:
            self.client.put_item(
                TableName=self.table,
                Item=item,
                ConditionExpression="attribute_not_exists(order_id)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            earlier = StoredOrder.of(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD
            if earlier.fingerprint != request.fingerprint:
                raise KeyReused from None
            return earlier, False
        return StoredOrder.of(item), True

    def pay_again(
        self, order_id: str, payment_method: str, idempotency_key: str, *, now: datetime
    ) -> tuple[StoredOrder, bool]:
        """Make the next attempt, with another card; returns also whether it is new, or made by an earlier try.

        One conditional write decides all of it: two of these at once make one attempt, and so does one key, for ever.

        Raises:
            NoSuchOrder: there is none.
            KeyReused: an attempt was made with this key, for another payment method.
            OrderStatusConflict: the order is not declined.
            AttemptsExhausted: it has had its last attempt.
            PaymentMethodRefused: an earlier attempt with this payment method must not be repeated.
        """
        key, request = digest_of(idempotency_key), digest_of(payment_method)
        is_declined = "#status = :declined"
        key_is_unused = "attribute_not_exists(attempt_keys.#key)"
        another_is_left = "attempt < :attempts_max"
        card_is_allowed = "NOT contains(refused_payment_methods, :payment_method)"
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order_id}),
                UpdateExpression="SET #status = :pending, attempt = attempt + :one, payment_method = :payment_method, "
                "attempt_placed_at = :now, attempt_keys.#key = :request REMOVE expires_at",
                ConditionExpression=" AND ".join([is_declined, key_is_unused, another_is_left, card_is_allowed]),
                ExpressionAttributeNames={"#status": "status", "#key": key},
                ExpressionAttributeValues=to_item(
                    {
                        ":pending": OrderStatus.PENDING,
                        ":declined": OrderStatus.PAYMENT_DECLINED,
                        ":one": 1,
                        ":attempts_max": ATTEMPTS_MAX,
                        ":payment_method": payment_method,
                        ":now": now.isoformat(),
                        ":request": request,
                    }
                ),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            order = _refused(refused)
            return _replayed(order, key, request) or _not_payable(order), False
        return StoredOrder.of(answer["Attributes"]), True

    def cancel(self, order_id: str, status: OrderStatus, *, now: datetime) -> StoredOrder:
        """Write that the order is CANCELING or CANCELED, as the payment service has said of all its attempts.

        Raises NoSuchOrder, OrderStatusConflict.
        """
        movable = {
            ":pending": OrderStatus.PENDING,
            ":declined": OrderStatus.PAYMENT_DECLINED,
            ":requires_action": OrderStatus.REQUIRES_ACTION,
            ":canceling": OrderStatus.CANCELING,
        }
        if status is OrderStatus.CANCELED:
            movable |= {":canceled": OrderStatus.CANCELED}
            changes = ", expires_at = :when"
            when: int | str = expires_at(now)
        else:
            changes = ", cancel_requested_at = if_not_exists(cancel_requested_at, :when) REMOVE expires_at"
            when = now.isoformat()
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=to_item({"order_id": order_id}),
                UpdateExpression=f"SET #status = :status{changes}",
                ConditionExpression=f"#status IN ({', '.join(movable)})",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues=to_item({":status": status, ":when": when, **movable}),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            raise OrderStatusConflict(_refused(refused)) from None
        return StoredOrder.of(answer["Attributes"])

    def of_customer(self, customer_id: str, *, after: Cursor | None, limit: int) -> OrderPage:
        """So many of the customer's orders, the newest first, from there on."""
        start = {"order_id": after.order_id, "placed_at": after.placed_at, "customer_id": customer_id} if after else {}
        answer = self.client.query(
            TableName=self.table,
            IndexName=BY_CUSTOMER,
            KeyConditionExpression="customer_id = :customer_id",
            ExpressionAttributeValues=to_item({":customer_id": customer_id}),
            ScanIndexForward=False,
            Limit=limit,
            **({"ExclusiveStartKey": to_item(start)} if start else {}),  # type: ignore[arg-type]  # One argument.
        )
        last = answer.get("LastEvaluatedKey")
        values = from_item(last) if last else None
        orders, unreadable = [], []
        for item in answer["Items"]:
            try:
                orders.append(StoredOrder.of(item))
            except Exception:  # Whatever is wrong with the one, the others are shown.
                unreadable.append(item["order_id"]["S"])
        return OrderPage(
            tuple(orders), tuple(unreadable), Cursor(values["order_id"], values["placed_at"]) if values else None
        )

    def find(self, order_id: str) -> StoredOrder | None:
        answer = self.client.get_item(TableName=self.table, Key=to_item({"order_id": order_id}), ConsistentRead=True)
        return StoredOrder.of(answer["Item"]) if "Item" in answer else None


def _refused(refused: "ClientError") -> StoredOrder:
    """The order as the refusal shows it. Raises NoSuchOrder."""
    if "Item" not in refused.response:
        raise NoSuchOrder from None
    return StoredOrder.of(refused.response["Item"])  # type: ignore[typeddict-item]  # with ALL_OLD


def _replayed(order: StoredOrder, key: str, request: str) -> StoredOrder | None:
    """The order, if this key has made an attempt; None if it is new. Raises KeyReused."""
    used_for = order.attempt_keys.get(key)
    if used_for is None:
        return None
    if used_for != request:
        raise KeyReused
    return order


def _not_payable(order: StoredOrder) -> Never:
    """Raises why no further attempt was made under a new key, the condition's parts in their order."""
    if order.status is not OrderStatus.PAYMENT_DECLINED:
        raise OrderStatusConflict(order)
    if order.attempt >= ATTEMPTS_MAX:
        raise AttemptsExhausted
    raise PaymentMethodRefused
