"""Money in events and requests: an integer number of minor units, and an ISO 4217 currency that Stripe can charge.

1099 with "eur" is 10.99 euro, 500 with "jpy" is 500 yen. An amount is never a float and never a decimal string.
"""

from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

MAX_AMOUNT_MINOR = 999_999_999_999
"""The largest amount that Stripe accepts for a card payment: twelve digits of the minor unit. American Express
takes nine. The smallest depends on the account's settlement currency: Stripe decides, and refuses what is less.
Source: Stripe documentation, "Supported currencies", minimum and maximum charge amounts."""

CURRENCIES = frozenset(
    (
        "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BWP BYN BZD CAD CDF CHF CLP "
        "CNY COP CRC CVE CZK DJF DKK DOP DZD EGP ETB EUR FJD FKP GBP GEL GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS "
        "INR JMD JOD JPY KES KGS KHR KMF KRW KWD KYD KZT LAK LBP LKR LRD LSL MAD MDL MKD MMK MNT MOP MUR MVR MWK MXN "
        "MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SEK SGD SHP "
        "SLE SOS SRD STD SZL THB TJS TND TOP TRY TTD TWD TZS UAH USD UYU UZS VND VUV WST XAF XCD XOF XPF YER ZAR ZMW"
    ).split()
)
"""The ISO 4217 codes of the currencies that can be charged: Stripe's, except ISK, UGX and MGA. Stripe's minor unit of
these differs from ISO 4217's, so that the same integer would be another amount of money.
Source: Stripe documentation, "Supported currencies" and its special cases."""

THREE_DECIMALS = frozenset({"BHD", "JOD", "KWD", "OMR", "TND"})
"""Currencies with three decimals: Stripe charges only amounts whose last digit is 0."""

NO_DECIMALS = frozenset("BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF".split())
"""Currencies whose minor unit is the currency itself, for Stripe. Those in neither set have two decimals."""


def as_money(amount_minor: int, currency: str) -> str:
    """The amount as people write it: 2500 with "eur" is `25.00 EUR`, 500 with "jpy" is `500 JPY`."""
    currency = currency.upper()
    decimals = 0 if currency in NO_DECIMALS else 3 if currency in THREE_DECIMALS else 2
    return f"{Decimal(amount_minor).scaleb(-decimals):,.{decimals}f} {currency}"


def is_returned(amount_minor: int, refunded_minor: int, dispute_status: str | None) -> bool:
    """Whether the customer has all of a charge's money back: refunded, or by a dispute that was lost."""
    return refunded_minor >= amount_minor or dispute_status == "lost"


def require_chargeable(amount_minor: int, currency: str) -> None:
    """Raises a validation error if Stripe cannot charge this amount of this currency."""
    if currency in THREE_DECIMALS and amount_minor % 10:
        raise PydanticCustomError(
            "amount_not_chargeable", "An amount of a currency with three decimals should end with 0"
        )


def supported_currency(code: str) -> str:
    """Return the ISO 4217 code in upper case; raises a validation error that does not repeat the input."""
    upper = code.upper()
    if upper not in CURRENCIES:
        raise PydanticCustomError(
            "unknown_currency", "Input should be the ISO 4217 code of a currency that can be charged"
        )
    return upper


Currency = Annotated[str, AfterValidator(supported_currency), Field(json_schema_extra={"enum": sorted(CURRENCIES)})]
"""An ISO 4217 alphabetic code, converted to upper case."""

AmountMinor = Annotated[int, Field(strict=True, ge=1, le=MAX_AMOUNT_MINOR)]
"""A positive integer number of minor units, no more than Stripe accepts for one charge."""
