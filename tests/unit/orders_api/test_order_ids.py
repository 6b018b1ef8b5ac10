"""The ids of orders: nobody can compute one without the key, and no order is placed with another key."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onecharge.orders.ids import GuardedKey, OrderIdKeyChanged, OrderIds
from testing.harness import create_table
from testing.order_ids import KEY
from testing.orders_api import Client, order

OTHER_KEY = "x" * 64
NOW = datetime(2026, 11, 21, tzinfo=UTC)


class Deployed:
    """The secret and the table of a stack; each `environment` is an execution environment, as a cold start makes it."""

    def __init__(self) -> None:
        self.dynamodb = boto3.client("dynamodb")
        self.table = create_table(self.dynamodb, "keys", "OrderIdKeyTable")
        self.secret: Callable[[], str] = lambda: KEY

    def environment(self) -> GuardedKey:
        return GuardedKey(self.dynamodb, self.table, read_key=lambda: self.secret(), clock=lambda: NOW)

    def recorded(self) -> list[dict[str, Any]]:
        return self.dynamodb.scan(TableName=self.table)["Items"]


@pytest.fixture
def deployed(aws: None) -> Deployed:
    return Deployed()


def put(deployed: Deployed, key: str) -> None:
    deployed.secret = lambda: key


# ---------------------------------------------------------------- the ids


def test_an_id_is_always_the_same() -> None:
    """A retry finds its order: this very id is in the tables of whoever has used this key."""
    assert OrderIds(KEY.encode()).of("cus_1", "key-1") == "ord_1603c004914de9d5704b1c5870855bc6"


def test_an_id_depends_on_the_key_and_on_each_part() -> None:
    """Whoever knows customer and idempotency key computes no id; and no two orders share one."""
    parts = [("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"), ("a,b",), ("a", "b", ""), ('a","b',), ("a", "c")]
    ids = {OrderIds(key.encode()).of(*each) for key in (KEY, OTHER_KEY, KEY + "k") for each in parts}
    assert len(ids) == 3 * len(parts)


def test_the_fingerprint_is_no_id_and_shows_no_key() -> None:
    """Nor can a customer choose parts whose id it is: an id is of JSON, which the fingerprint's text is not."""
    ids = OrderIds(KEY.encode())
    assert KEY not in repr(ids)
    assert KEY not in ids.fingerprint
    assert ids.fingerprint != OrderIds(OTHER_KEY.encode()).fingerprint
    assert f"ord_{ids.fingerprint}" != ids.of("onecharge: fingerprint of the order id key")


# ---------------------------------------------------------------- the guard


def test_the_first_use_records_the_key_and_later_ones_compare(deployed: Deployed) -> None:
    """However many environments there are; white space around the key is no part of it."""
    first = deployed.environment().ids()
    put(deployed, f" {KEY}\n")
    assert deployed.environment().ids() == first
    [item] = deployed.recorded()
    assert KEY not in json.dumps(item)


def test_another_key_makes_no_id(deployed: Deployed) -> None:
    """A rotation, or a secret put by hand: no execution environment that reads it places an order."""
    deployed.environment().ids()
    put(deployed, OTHER_KEY)
    changed = deployed.environment()
    for _ in range(2):
        with pytest.raises(OrderIdKeyChanged):
            changed.ids()


def test_an_environment_keeps_the_key_that_it_has(deployed: Deployed) -> None:
    """While the key is another one, environments that are older go on, with the right ids; no one mixes the two."""
    old = deployed.environment()
    ids = old.ids()
    put(deployed, OTHER_KEY)
    assert old.ids() == ids


def test_the_former_key_mends_it(deployed: Deployed) -> None:
    """Without a deploy, in the environments that refused."""
    ids = deployed.environment().ids()
    put(deployed, OTHER_KEY)
    changed = deployed.environment()
    with pytest.raises(OrderIdKeyChanged):
        changed.ids()
    put(deployed, KEY)
    assert changed.ids() == ids


def test_of_two_versions_at_once_one_is_the_key(deployed: Deployed) -> None:
    """Two environments read different versions before anything is recorded: the first write decides for both."""
    one, other = deployed.environment(), deployed.environment()
    put(deployed, OTHER_KEY)
    ids = other.ids()
    put(deployed, KEY)
    with pytest.raises(OrderIdKeyChanged):
        one.ids()
    put(deployed, OTHER_KEY)
    assert one.ids() == ids


@pytest.mark.parametrize("key", ["", " " * 64, "later", "k" * 31])
def test_what_is_too_short_is_no_key(deployed: Deployed, key: str) -> None:
    """Nothing is recorded: a placeholder does not become the key that all later ones are compared with."""
    put(deployed, key)
    with pytest.raises(OrderIdKeyChanged):
        deployed.environment().ids()
    assert deployed.recorded() == []


def test_a_table_that_does_not_answer_makes_no_id(deployed: Deployed) -> None:
    """The key was not compared, so it is not used; the next call tries again."""
    environment = deployed.environment()
    deployed.dynamodb.delete_table(TableName=deployed.table)
    with pytest.raises(ClientError):
        environment.ids()
    create_table(deployed.dynamodb, deployed.table, "OrderIdKeyTable")
    assert environment.ids() == deployed.environment().ids()


def test_a_write_whose_answer_was_lost_is_repeated(deployed: Deployed) -> None:
    """The second write is refused by the first one's item, which is the same."""
    lost = GuardedKey(_LosesAnswers(deployed.dynamodb), deployed.table, read_key=deployed.secret, clock=lambda: NOW)  # type: ignore[arg-type]
    with pytest.raises(ConnectionError):
        lost.ids()
    assert lost.ids() == deployed.environment().ids()


class _LosesAnswers:
    """A client of DynamoDB whose first answer to a write is lost."""

    def __init__(self, client: Any) -> None:
        self._client, self._lost = client, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def put_item(self, **arguments: Any) -> Any:
        answer = self._client.put_item(**arguments)
        if not self._lost:
            self._lost = True
            raise ConnectionError
        return answer


def test_a_self_check_compares_and_records_nothing(deployed: Deployed) -> None:
    """Before the first order any key is well, since it may be another stack's that is put there; then only the key."""
    deployed.environment().check()
    assert deployed.recorded() == []
    deployed.environment().ids()
    deployed.environment().check()
    put(deployed, OTHER_KEY)
    with pytest.raises(OrderIdKeyChanged):
        deployed.environment().check()


# ---------------------------------------------------------------- the API


def test_nothing_is_ordered_with_another_key(client: Client) -> None:
    """A retry of a paid order, in an environment that reads another key: 503 and an alarm, and no second order."""
    first = client.post(order())
    client.order_id_key = OTHER_KEY
    client.cold_start()
    for _ in range(2):
        status, problem, _ = client.post(order())
        assert (status, problem["type"]) == (503, "urn:onecharge:problem:try-again")
    assert len(client.stored()) == 1
    assert (client.counted["OrderIdKeyChanged"], client.counted["Alarm"]) == (2, 2)
    assert OTHER_KEY not in client.log.text
    # What needs no new id works.
    assert client.get(f"/orders/{first[1]['order_id']}")[0] == 200
    client.order_id_key = KEY
    assert client.post(order())[1] == first[1]


def test_the_id_of_an_order_is_keyed(client: Client) -> None:
    """By the secret, and not by what anybody outside knows."""
    _, placed, _ = client.post(order(), key="key-1")
    assert placed["order_id"] == OrderIds(KEY.encode()).of("cus_1", "key-1")
