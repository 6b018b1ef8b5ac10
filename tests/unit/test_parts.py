"""A function's parts: made at their first use, once, and only those that an event needs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier
from time import sleep
from typing import Any

import pytest

from onecharge.contract.events import OrderPlacedEvent
from onecharge.contract.refunds import RefundOutcomeEvent
from onecharge.payments.stripe_responses import Deferred
from onecharge.runtime.parts import Parts, part
from refund_charge.app import RefundChargeParts
from stripe_standin.server import running_standin
from tests.support.fake_sns import FakeSns
from tests.support.functions import handle
from tests.support.harness import LambdaContext, Sample
from tests.support.payment_functions import PaymentFunctions, placed


class Slow(Parts):
    """Parts that take a while to make."""

    made = 0
    failures = 0

    @part
    def bucket(self) -> object:
        """Fails as often as it is told to."""
        self.made += 1
        sleep(0.05)
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError
        return object()

    @part
    def user(self) -> tuple[str, object]:
        """Made of another part."""
        return self.environment["NAME"], self.bucket


def test_a_part_is_made_at_its_first_use_and_kept() -> None:
    """And those that it is made of, of the environment variables that it needs."""
    parts = Slow({"NAME": "a"})
    assert parts.made == 0
    assert parts.user == ("a", parts.bucket)
    assert parts.user is parts.user
    assert parts.made == 1


def test_threads_that_need_a_part_at_the_same_time_share_it() -> None:
    """Two would be two rate limits, or two copies of a secret."""
    parts, together = Slow({"NAME": "a"}), Barrier(2)

    def use(name: str) -> Any:
        together.wait()
        return getattr(parts, name)

    with ThreadPoolExecutor(2) as threads:
        [(_, of_user), bucket] = threads.map(use, ["user", "bucket"])
    assert of_user is bucket
    assert parts.made == 1


def test_a_part_that_could_not_be_made_is_made_at_the_next_use() -> None:
    """The first record of a batch meets the error, the others a part."""
    parts = Slow({"NAME": "a"})
    parts.failures = 1
    with pytest.raises(ZeroDivisionError):
        _ = parts.user
    assert parts.user == ("a", parts.bucket)
    assert parts.made == 2


# ---------------------------------------------------------------- charge_order


@pytest.fixture
def world(aws: None, sample: Sample) -> Iterator[PaymentFunctions]:
    with running_standin() as standin:
        yield PaymentFunctions(standin.base_url, sample)


@pytest.mark.parametrize(
    ("body", "needed"),
    [
        (OrderPlacedEvent.of(placed("a"), correlation_id="c").model_dump_json(), {"dynamodb", "secretsmanager"}),
        ("{}", {"sqs"}),
    ],
    ids=["a fresh order", "a poison message"],
)
def test_a_charge_makes_only_the_clients_that_it_needs(
    world: PaymentFunctions, monkeypatch: pytest.MonkeyPatch, body: str, needed: set[str]
) -> None:
    """A cold start takes 10 ms and more for each: SQS is for a message that waits or is poison alone."""
    made, client = [], Parts.client

    def noted(parts: Parts, service: str) -> Any:
        made.append(service)
        return client(parts, service)

    monkeypatch.setattr(Parts, "client", noted)
    [record] = world.sample("charge_order/order_placed")["Records"]
    answer = handle(world.charge_order, {"Records": [record | {"body": body}]}, LambdaContext())
    assert answer == {"batchItemFailures": []}
    assert set(made) == needed


# ---------------------------------------------------------------- refund_charge


@pytest.mark.parametrize("refuses", [False, True])
def test_an_outcome_that_sns_refuses_is_not_told(sample: Sample, refuses: bool) -> None:
    """PublishBatch answers 200 all the same: what published it learns it, and is delivered again."""
    sns, body = FakeSns(), sample("update_order/refund_succeeded")["Records"][0]["body"]
    sns.refuses = lambda _: refuses
    parts = RefundChargeParts({"PAYMENT_EVENTS_TOPIC_ARN": "payments-topic"})
    parts.__dict__["sns"] = sns
    with pytest.raises(Deferred) if refuses else nullcontext():
        parts.publish(RefundOutcomeEvent.model_validate_json(body))
    assert [topic for topic, _ in sns.sent] == ["payments-topic"] * (not refuses)
