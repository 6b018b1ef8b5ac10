"""An amount is an integer of minor units, a currency one that Stripe charges; anything else is refused."""

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from onecharge.contract.money import MAX_AMOUNT_MINOR, AmountMinor, Currency, as_money, require_chargeable

AMOUNTS = ["0", "-1", "10.5", "10.0", "1e3", '"1099"', "true", "null", "1000000000000", "1" * 400]


def test_only_an_integer_from_one_to_stripes_largest_is_an_amount() -> None:
    """No fraction, no text, no boolean."""
    for amount in (1, 1099, MAX_AMOUNT_MINOR):
        assert TypeAdapter(AmountMinor).validate_json(str(amount)) == amount
    for other in AMOUNTS:
        with pytest.raises(ValidationError):
            TypeAdapter(AmountMinor).validate_json(other)


def test_only_the_code_of_a_currency_that_stripe_charges_is_one() -> None:
    """In any case; the error does not repeat the input."""
    assert TypeAdapter(Currency).validate_python("eur") == "EUR"
    for code in ("XXX", "EURO", "", "€", "btc", "XAU", "ISK", "UGX", "MGA"):
        with pytest.raises(ValidationError) as refused:
            TypeAdapter(Currency).validate_python(code)
        message = "Input should be the ISO 4217 code of a currency that can be charged"
        assert [each["msg"] for each in refused.value.errors()] == [message]


def test_an_amount_that_stripe_would_refuse_is_refused() -> None:
    """For its third decimal. What is too small for an account is left to Stripe."""
    require_chargeable(4150, "KWD")
    require_chargeable(4155, "EUR")
    with pytest.raises(PydanticCustomError, match="three decimals"):
        require_chargeable(4155, "KWD")


@pytest.mark.parametrize(
    ("amount_minor", "currency", "money"),
    [
        (2500, "eur", "25.00 EUR"),
        (5, "EUR", "0.05 EUR"),
        (99_999_900, "USD", "999,999.00 USD"),
        (500, "jpy", "500 JPY"),
        (4150, "KWD", "4.150 KWD"),
        (-2500, "EUR", "-25.00 EUR"),
    ],
)
def test_money_is_written_with_its_currencys_decimals(amount_minor: int, currency: str, money: str) -> None:
    """As Stripe counts them: none, two or three."""
    assert as_money(amount_minor, currency) == money
