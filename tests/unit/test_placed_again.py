"""Whether orders may be placed again after a restore: read consistently, kept for a moment, and never guessed."""

import pytest
from botocore.exceptions import ClientError

from onecharge.contract.events import OrderPlacedEvent
from onecharge.payments.placed_again import KEPT_SECONDS, LookUpPlacedBefore, PlacedAgain
from onecharge.runtime.checkpoints import CheckpointStore
from stripe_standin.server import running_standin
from tests.shop.shop import Shop
from tests.support.harness import LambdaContext, Sample
from tests.support.payment_functions import PaymentFunctions, placed


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A test adds what passes, in seconds."""
    now = [0.0]
    monkeypatch.setattr("onecharge.payments.placed_again.time.time", lambda: sum(now))
    return now


def state_of(shop: Shop) -> CheckpointStore[PlacedAgain]:
    return CheckpointStore(shop.dynamodb, "PaymentsState", PlacedAgain)


def test_it_is_read_once_in_a_while(shop: Shop, passes: list[float]) -> None:
    """Nobody has set it at first. A delivery pays for a read only if the last one is older than that."""
    look_up_before = LookUpPlacedBefore(state_of(shop))
    assert look_up_before() == 0
    state_of(shop).write(PlacedAgain(look_up_before=7))
    shop.io.asked.clear()
    passes.append(KEPT_SECONDS - 1)
    assert (look_up_before(), shop.io.asked) == (0, [])
    passes.append(1)
    assert [look_up_before() for _ in range(3)] == [7] * 3
    assert shop.io.asked == ["dynamodb GetItem"]
    passes.append(-1)  # A clock that was set back says nothing about how old it is.
    assert (look_up_before(), len(shop.io.asked)) == (7, 2)


@pytest.mark.parametrize("known", [True, False])
def test_unreadable_is_not_zero(shop: Shop, passes: list[float], *, known: bool) -> None:
    """Nor what was known before: the order waits."""
    look_up_before = LookUpPlacedBefore(state_of(shop))
    if known:
        assert look_up_before() == 0
    passes.append(KEPT_SECONDS)
    shop.io.failing = "dynamodb GetItem"
    for _ in range(2):
        with pytest.raises(ClientError):
            look_up_before()
    shop.io.failing = ""
    assert look_up_before() == 0


def test_a_delivery_that_cannot_read_it_confirms_nothing(aws: None, sample: Sample) -> None:
    """The lease is released, and the message is retried, as in any outage: charge_order itself, over moto."""
    with running_standin() as standin:
        world = PaymentFunctions(standin.base_url, sample)
        world.dynamodb.delete_table(TableName="PAYMENTS_STATE_TABLE")
        [record] = sample("charge_order/order_placed")["Records"]
        event = {"Records": [record | {"body": OrderPlacedEvent.of(placed("a"), correlation_id="c").model_dump_json()}]}
        assert len(world.charge_order.consumer.consume(event, LambdaContext())["batchItemFailures"]) == 1
        [row] = world.dynamodb.scan(TableName="PAYMENTS_TABLE")["Items"]
        assert (row["state"], row["lease_expires_at"], "payment_intent_id" in row) == (
            {"S": "PENDING"},
            {"N": "0"},
            False,
        )
        assert not world.stripe.ledger().charges
