"""TableUnitsMax, the tables' fuse: when it blows, writes are throttled, and no order is lost or charged twice."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from onecharge.contract.states import PaymentState
from testing.builders import BOUNDS
from testing.charge_harness import ChargeHarness
from testing.harness import load_template

TEMPLATE = load_template()
ONE_ITEM = {"OrdersStateTable", "PaymentsStateTable", "StripeLimitTable"}
"""The checkpoints of scheduled runs, what workers share of Stripe's limit."""
UNITS_OF_AN_ORDER = 3
"""Write units of the table that an order needs most of: Payments."""


class Throttled:
    """A client whose table's fuse blows at the writes of these numbers, counted from 1."""

    def __init__(self, client: Any, *writes: int) -> None:
        self._client, self._throttled, self.writes = client, writes, 0

    def update_item(self, **request: Any) -> Any:
        self.writes += 1
        if self.writes in self._throttled:
            # Amazon DynamoDB Developer Guide, "On-demand maximum throughput exceeded".
            error = {"Code": "ThrottlingException", "Message": "MaxOnDemandThroughputExceeded"}
            raise ClientError({"Error": error}, "UpdateItem")  # type: ignore[typeddict-item]
        return self._client.update_item(**request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.mark.parametrize("throttled", [(1,), (2,), (3,), (1, 3), (2, 4), (3, 5)], ids=str)
def test_a_throttled_delivery_is_delivered_again_and_charges_once(throttled: tuple[int, ...]) -> None:
    """Whichever of an order's writes is refused: the claim, the PaymentIntent's id, the outcome."""
    service = ChargeHarness()
    service.client = Throttled(service.client, *throttled)
    failures = 0
    while not (service.client.writes and _state(service) == PaymentState.SUCCEEDED):
        try:
            service.deliver()
        except ClientError:
            failures += 1  # The consumer returns the message to its queue.
        service.now += BOUNDS.lease_seconds + 1
        assert failures <= len(throttled)
    assert failures > 0
    assert [intent.status for intent in service.stripe.intents.values()] == ["succeeded"], "one, and it is paid"


def _state(service: ChargeHarness) -> str | None:
    items = service.client.scan(TableName="payments")["Items"]
    return items[0]["state"]["S"] if items else None


def test_every_table_that_grows_has_the_fuse() -> None:
    """A loop in the code, or an attack, costs no more than the fuse lets through."""
    fuses = {
        name: each["Properties"].get("OnDemandThroughput")
        for name, each in TEMPLATE["Resources"].items()
        if each["Type"] == "AWS::DynamoDB::Table" and name not in ONE_ITEM
    }
    fuse = {"MaxReadRequestUnits": "Ref TableUnitsMax", "MaxWriteRequestUnits": "Ref TableUnitsMax"}
    assert fuses == dict.fromkeys(fuses, fuse)


def test_the_fuse_lets_through_what_the_api_does() -> None:
    """It blows for what is wrong, not for a good day: as many orders a second as the API admits need less than half."""
    orders_a_second = TEMPLATE["Resources"]["OrdersApi"]["Properties"]["DefaultRouteSettings"]["ThrottlingRateLimit"]
    assert 2 * UNITS_OF_AN_ORDER * orders_a_second < TEMPLATE["Parameters"]["TableUnitsMax"]["Default"]
