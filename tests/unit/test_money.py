"""Money is an integer of minor units and a currency that can be charged; anything else is refused."""

import pytest
from pydantic import TypeAdapter, ValidationError

from onecharge.money import MAX_AMOUNT_MINOR, AmountMinor, Currency


@pytest.mark.parametrize("amount", [1, 1099, MAX_AMOUNT_MINOR])
def test_an_integer_amount_is_taken(amount: int) -> None:
    """From one minor unit to the largest that Stripe charges."""
    assert TypeAdapter(AmountMinor).validate_json(str(amount)) == amount


@pytest.mark.parametrize("amount", ["0", "-1", "10.5", "10.0", "1e3", '"1099"', "true", "null", "100000000", "1" * 400])
def test_any_other_amount_is_refused(amount: str) -> None:
    """Zero, negative, fractional, textual, boolean and huge amounts."""
    with pytest.raises(ValidationError):
        TypeAdapter(AmountMinor).validate_json(amount)


def test_a_currency_is_read_in_any_case() -> None:
    """ISO 4217 codes, upper case from here on."""
    assert TypeAdapter(Currency).validate_python("eur") == "EUR"


@pytest.mark.parametrize("code", ["XXX", "EURO", "", "€", "btc", "XAU", "ISK", "UGX", "MGA"])
def test_an_unknown_currency_is_refused_without_repeating_it(code: str) -> None:
    """The message of the error does not hold the input."""
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(Currency).validate_python(code)
    assert refused.value.errors()[0]["msg"] == "Input should be the ISO 4217 code of a currency that can be charged"
