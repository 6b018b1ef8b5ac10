"""Currencies, minimum and maximum amounts. Source: Stripe documentation, "Supported currencies"."""

import re
from collections.abc import Mapping

from stripe_standin.errors import invalid
from stripe_standin.parameters import integer

AMOUNT_MAX = 999_999_999_999

MINIMUM_AMOUNTS: Mapping[str, int] = {
    **dict.fromkeys(("usd", "aud", "brl", "cad", "chf", "eur", "inr", "jpy", "nzd", "sgd"), 50),
    **{"aed": 200, "czk": 1500, "dkk": 250, "gbp": 30, "hkd": 400, "huf": 17500, "mxn": 1000, "myr": 200, "nok": 300},
    **{"pln": 200, "ron": 200, "sek": 300, "thb": 1000},
}
"""In minor units, for an account that settles in the same currency. Conversion is not modeled."""

_ZERO_DECIMAL = frozenset("bif clp djf gnf jpy kmf krw mga pyg rwf ugx vnd vuv xaf xof xpf".split())
_ZERO = "The amount must be greater than or equal to the minimum charge amount allowed for the currency."


def currency_of(parameters: Mapping[str, str]) -> str:
    if "currency" not in parameters:
        raise invalid("Missing required param: currency.", param="currency", code="parameter_missing")
    currency = parameters["currency"].lower()
    if not re.fullmatch("[a-z]{3}", currency):
        raise invalid(f"Invalid currency: {currency}.", param="currency")
    return currency


def amount_to_charge(parameters: Mapping[str, str], currency: str) -> int:
    """An amount that Stripe charges: not below the currency's minimum, of twelve digits at most."""
    if parameters.get("amount") == "0":
        raise invalid(_ZERO, param="amount", code="parameter_invalid_integer")
    amount = positive_amount(parameters)
    least = MINIMUM_AMOUNTS.get(currency, 1)
    if amount < least:
        text = f"Amount must be at least {in_units(least, currency)} {currency}"
        raise invalid(text, param="amount", code="amount_too_small")
    if amount > AMOUNT_MAX:
        text = f"Amount must be no more than {in_units(AMOUNT_MAX, currency)} {currency}"
        raise invalid(text, param="amount", code="amount_too_large")
    return amount


def positive_amount(parameters: Mapping[str, str]) -> int:
    if "amount" not in parameters:
        raise invalid("Missing required param: amount.", param="amount", code="parameter_missing")
    amount = integer(parameters["amount"], "amount")
    if amount < 1:
        raise invalid(
            "This value must be greater than or equal to 1.", param="amount", code="parameter_invalid_integer"
        )
    return amount


def in_units(amount: int, currency: str) -> str:
    """An amount in the currency's own unit: 0.50."""
    return str(amount) if currency in _ZERO_DECIMAL else f"{amount / 100:,.2f}"
