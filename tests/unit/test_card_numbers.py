"""Card numbers are detected in any text; other numbers are accepted."""

import random
import uuid

import pytest

from onecharge.orders.card_numbers import body_holds_card_number, holds_card_number

CARDS = [
    "4242424242424242",
    "5555555555554444",
    "378282246310005",
    "30569309025904",
    "6011111111111117",
    "3566002020360505",
    "6205500000000000004",
]


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("around", ["{}", "note: {}.", '{{"sku": "{}"}}', "card{}x", "+{}", '{{"{}": 1}}', "[{}]"])
def test_a_card_number_is_detected_in_any_context(card: str, around: str) -> None:
    """In a value, a name, a sentence, or as a JSON number."""
    assert holds_card_number(around.format(card))


@pytest.mark.parametrize(
    "text",
    [
        "4242 4242 4242 4242",
        "4242-4242-4242-4242",
        "3782 822463 10005",
        "3056 930902 5904",
        "4242_4242_4242_4242",
        "4242:4242:4242:4242",
        "4242  4242  4242  4242",
        "６０１１１１１１１１１１１１１７",
        "Visa4242-4242-4242-4242",
        "4242 - 4242 - 4242 - 4242",
        r"4242\/4242\/4242\/4242",
        "4242\u20134242\u20134242\u20134242",
        "4242-4242-4242-4242a",
    ],
)
def test_a_card_number_with_separators_is_detected(text: str) -> None:
    """With spaces, dashes or other separators between groups, and with digits of other scripts."""
    assert holds_card_number(f"pay with {text} please")


@pytest.mark.parametrize(
    "text",
    [
        "4242424242424241",
        "424242424242",
        "99999999",
        "1795251600000",
        "20261121093004",
        "order-20261121093012",
        "1795251600000000001",
        "4006381333931",
        "pm_card_visa",
        "3f2b8c4e-1234-4567-8901-123456789012",
        "key_3f2b8c4e-4242-4242-4242-424200000000",
        "",
    ],
)
def test_other_numbers_are_accepted(text: str) -> None:
    """Wrong check digits, amounts, timestamps, EAN barcodes and UUIDs are not card numbers."""
    assert not holds_card_number(text)


def test_uuid_idempotency_keys_are_accepted() -> None:
    """None of 20,000 random UUIDs, with dashes or without, is detected as a card number."""
    source = random.Random(7)
    keys = [uuid.UUID(int=source.getrandbits(128), version=4) for _ in range(20_000)]
    assert not [key for key in keys if holds_card_number(str(key)) or holds_card_number(key.hex)]


BODIES = {
    "a value": '{"sku": "Visa4242-4242-4242-4242"}',
    "a name": '{"Visa4242-4242-4242-4242": 1}',
    "a number": "[4242424242424242]",
    "a fraction": '{"amount": 4242424242424242.0}',
    "a duplicate name": '{"a": "4242 4242 4242 4242", "a": "b"}',
    "nested": '{"a": [{"b": ["4242424242424242"]}]}',
    "an escaped slash": r'{"a": "4242\/4242\/4242\/4242"}',
    "escaped digits": r'{"a": "\u0034242424242424242"}',
    "an escaped tab": r'{"a": "4242\t4242\t4242\t4242"}',
    "not JSON": "card: 4242424242424242",
    "not JSON, escaped": r'{"a": "\u0034242424242424242"',
    "nested too deeply": "[" * 100_000 + "4242424242424242",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_card_number_is_detected_in_a_parsed_body(body: str) -> None:
    """In each name and value of the JSON; in the text itself if it is not JSON."""
    assert body_holds_card_number(body)


@pytest.mark.parametrize(
    "body", ["", "{}", "[4242, 4242, 4242, 4242]", '{"id": "3f2b8c4e-1234-4567-8901-123456789012"}']
)
def test_a_body_without_a_card_number_is_accepted(body: str) -> None:
    """Adjacent JSON numbers are not joined."""
    assert not body_holds_card_number(body)
