"""An amount is an integer of minor units, a currency one that Stripe charges; anything else is refused."""

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from onecharge.contract.money import (
    CURRENCIES,
    MAX_AMOUNT_MINOR,
    MINIMUM_MINOR,
    AmountMinor,
    Currency,
    as_money,
    require_minimum,
)


@pytest.mark.parametrize("amount", [1, 1099, MAX_AMOUNT_MINOR])
def test_an_integer_amount_is_accepted(amount: int) -> None:
    """From one minor unit to the largest that Stripe charges."""
    assert TypeAdapter(AmountMinor).validate_json(str(amount)) == amount


@pytest.mark.parametrize(
    "amount", ["0", "-1", "10.5", "10.0", "1e3", '"1099"', "true", "null", "1000000000000", "1" * 400]
)
def test_any_other_amount_is_refused(amount: str) -> None:
    """Zero, negative, fractional, textual, boolean and huge amounts."""
    with pytest.raises(ValidationError):
        TypeAdapter(AmountMinor).validate_json(amount)


def test_a_currency_is_read_in_any_case() -> None:
    """A lower case ISO 4217 code becomes upper case."""
    assert TypeAdapter(Currency).validate_python("eur") == "EUR"


@pytest.mark.parametrize("code", ["XXX", "EURO", "", "€", "btc", "XAU", "ISK", "UGX", "MGA"])
def test_an_unknown_currency_is_refused_without_its_value(code: str) -> None:
    """The error message does not contain the input."""
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Currency).validate_python(code)
    assert refused.value.errors()[0]["msg"] == "Input should be the ISO 4217 code of a currency that can be charged"


def test_each_minimum_is_plausible() -> None:
    """It belongs to a supported currency and is 30 to 17,500 minor units: a wrong factor of 100 fails here."""
    assert MINIMUM_MINOR.keys() <= CURRENCIES
    assert 30 <= min(MINIMUM_MINOR.values()) <= max(MINIMUM_MINOR.values()) <= 17_500


def test_an_amount_below_the_minimum_is_refused() -> None:
    """50 cents are accepted, 49 are not. Currencies without a listed minimum are left to Stripe."""
    require_minimum(50, "EUR")
    require_minimum(1, "ZAR")
    with pytest.raises(PydanticCustomError, match=r"at least 0\.50 EUR"):
        require_minimum(49, "EUR")


@pytest.mark.parametrize(
    ("amount_minor", "currency", "money"),
    [
        (2500, "eur", "25.00 EUR"),
        (5, "EUR", "0.05 EUR"),
        (99_999_900, "USD", "999,999.00 USD"),
        (500, "jpy", "500 JPY"),
        (4150, "KWD", "4.150 KWD"),
        (-2500, "EUR", "-25.00 EUR"),
        (0, "EUR", "0.00 EUR"),
    ],
)
def test_money_is_written_with_its_currencys_decimals(amount_minor: int, currency: str, money: str) -> None:
    """As Stripe counts them: none, two or three."""
    assert as_money(amount_minor, currency) == money
