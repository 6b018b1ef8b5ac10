"""POST /orders/{order_id}/cancel: the request is stored, unless the order is paid; the payment service finishes it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onecharge.orders.store import OrderStore
from orders_api.app import orders_resolver
from tests.support.orders_api import NOW, OTHER_CARD, Client

UNKNOWN = "ord_00000000000000000000000000000000"


@pytest.mark.parametrize("status", ["PENDING", "PAYMENT_DECLINED", "REQUIRES_ACTION"])
def test_a_cancellation_is_stored(client: Client, status: str) -> None:
    """202 CANCELING, and no other card from then on. It waits: the item does not expire."""
    order_id = client.placed()
    client.set_status(order_id, status)
    code, body, _ = client.to(f"{order_id}/cancel")
    [stored] = client.stored()
    assert (code, body["status"], stored["status"]["S"]) == (202, "CANCELING", "CANCELING")
    assert stored.keys() & {"waiting_shard", "expires_at"} == {"waiting_shard"}
    assert client.to(f"{order_id}/payments", OTHER_CARD, key="another")[0] == 409
    assert client.counted["OrderCanceling"] == 1


def test_a_second_request_stores_nothing(client: Client) -> None:
    """The same 202; the order waits since the first one."""
    order_id = client.placed()
    first = client.to(f"{order_id}/cancel")
    stored = client.stored()
    client.now += timedelta(hours=1)
    assert client.to(f"{order_id}/cancel")[:2] == first[:2]
    assert client.stored() == stored
    assert stored[0]["cancel_requested_at"]["S"] == NOW.isoformat()


@pytest.mark.parametrize(("status", "code", "problem"), [("PAID", 409, "already-paid"), ("CANCELED", 200, None)])
def test_an_order_that_has_ended_does_not_change(client: Client, status: str, code: int, problem: str | None) -> None:
    """If the charge won, 409; a canceled one is shown as it is."""
    order_id = client.placed()
    client.set_status(order_id, status)
    stored = client.stored()
    answered, body, _ = client.to(f"{order_id}/cancel")
    assert (answered, body.get("type")) == (code, problem and f"urn:onecharge:problem:{problem}")
    assert client.stored() == stored


class _Restricted(OrderStore):
    """An order of theirs is moved only under a condition that its status does not show."""

    def move(self, *given: Any, **named: Any) -> Mapping[str, Any]:
        return super().move(*given, **named, conditions=["attribute_exists(a_rule_to_come)"])


def test_what_was_not_stored_is_not_accepted(client: Client) -> None:
    """A write that is refused for another reason than the status is no 202."""
    order_id = client.placed()
    client.resolver = orders_resolver(replace(client.deps, orders=_Restricted(client.dynamodb, client.table)))
    assert client.to(f"{order_id}/cancel")[0] == 500


def test_a_canceled_order_shows_its_attempt_as_canceled(client: Client) -> None:
    """Though its last outcome was REQUIRES_ACTION."""
    order_id = client.requires_action()
    client.set_status(order_id, "CANCELED", _1={"status": "REQUIRES_ACTION"})
    _, body, _ = client.to(f"{order_id}/cancel")
    assert body["attempts"] == [{"attempt": 1, "status": "CANCELED"}]


@pytest.mark.parametrize("path", [UNKNOWN, "nothing"])
def test_an_unknown_order_is_not_found(client: Client, path: str) -> None:
    """404."""
    assert client.to(f"{path}/cancel")[0] == 404
