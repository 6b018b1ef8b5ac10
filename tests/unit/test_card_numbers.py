"""Card numbers are recognised wherever they hide, and what only looks like one is let through."""

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
def test_a_card_number_is_found_wherever_it_stands(card: str, around: str) -> None:
    """A card number is found in a value, a name, a sentence, or as a bare number."""
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
def test_a_card_number_is_found_in_the_groups_that_are_printed(text: str) -> None:
    """Spaces and dashes between the groups, and digits of other scripts, hide nothing."""
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
def test_what_is_no_card_number_is_let_through(text: str) -> None:
    """Wrong check digits, amounts, times, EAN barcodes and UUIDs are no card numbers."""
    assert not holds_card_number(text)


def test_idempotency_keys_as_clients_make_them_are_let_through() -> None:
    """None of 20,000 random UUIDs, with dashes or without, is taken for a card number."""
    source = random.Random(7)
    keys = [uuid.UUID(int=source.getrandbits(128), version=4) for _ in range(20_000)]
    assert not [key for key in keys if holds_card_number(str(key)) or holds_card_number(key.hex)]


BODIES = {
    "a value": '{"sku": "Visa4242-4242-4242-4242"}',
    "a name": '{"Visa4242-4242-4242-4242": 1}',
    "a number": "[4242424242424242]",
    "a fraction": '{"amount": 4242424242424242.0}',
    "a name that is there twice": '{"a": "4242 4242 4242 4242", "a": "b"}',
    "deep inside": '{"a": [{"b": ["4242424242424242"]}]}',
    "an escaped slash": r'{"a": "4242\/4242\/4242\/4242"}',
    "escaped digits": r'{"a": "\u0034242424242424242"}',
    "an escaped tab": r'{"a": "4242\t4242\t4242\t4242"}',
    "no JSON": "card: 4242424242424242",
    "no JSON, escaped": r'{"a": "\u0034242424242424242"',
    "too deep": "[" * 100_000 + "4242424242424242",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_card_number_is_found_in_what_the_body_means(body: str) -> None:
    """In each name and value of the parsed JSON, or in the text itself if it is no JSON."""
    assert body_holds_card_number(body)


@pytest.mark.parametrize(
    "body", ["", "{}", "[4242, 4242, 4242, 4242]", '{"id": "3f2b8c4e-1234-4567-8901-123456789012"}']
)
def test_a_body_without_one_is_let_through(body: str) -> None:
    """Four small numbers side by side are four numbers."""
    assert not body_holds_card_number(body)
