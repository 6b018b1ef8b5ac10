"""Card numbers are recognised wherever they hide, and what only looks like one is let through."""

import random
import uuid

import pytest

from onecharge.card_numbers import holds_card_number

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
