"""Money on the wire: an integer number of minor units, and an ISO 4217 currency that Stripe can charge.

An amount is never a float and never a decimal string: 1099 with "eur" is 10.99 euro, 500 with "jpy" is 500 yen.
"""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

MAX_AMOUNT_MINOR = 99_999_999
"""The largest amount that Stripe accepts for a charge in most currencies: eight digits of the minor unit.
Source: Stripe documentation, "Supported currencies", minimum and maximum charge amounts."""

# The currencies that Stripe presents charges in, as ISO 4217 alphabetic codes, by the number of decimals of their
# minor unit as Stripe counts it. Source: Stripe documentation, "Supported currencies" and "Zero-decimal currencies".
# ISK and UGX have no minor unit any more, but Stripe keeps counting them with two decimals.
_TWO_DECIMALS = (
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BWP BYN BZD CAD CDF CHF "
    "CNY COP CRC CVE CZK DKK DOP DZD EGP ETB EUR FJD FKP GBP GEL GIP GMD GTQ GYD HKD HNL HTG HUF IDR "
    "ILS INR ISK JMD KES KGS KHR KYD KZT LAK LBP LKR LRD LSL MAD MDL MKD MMK MNT MOP MUR MVR MWK MXN "
    "MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SEK SGD SHP "
    "SLE SOS SRD STD SZL THB TJS TOP TRY TTD TWD TZS UAH UGX USD UYU UZS WST XCD YER ZAR ZMW"
)
_NO_DECIMALS = "BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF"
_THREE_DECIMALS = "BHD JOD KWD OMR TND"

MINOR_UNIT_DECIMALS: dict[str, int] = {
    code: decimals
    for decimals, codes in ((0, _NO_DECIMALS), (2, _TWO_DECIMALS), (3, _THREE_DECIMALS))
    for code in codes.split()
}
"""How many decimals the minor unit of each supported currency has: {"EUR": 2, "JPY": 0, "KWD": 3, …}."""


def supported_currency(code: str) -> str:
    """Return the ISO 4217 code in upper case; raises a validation error that does not repeat the input."""
    upper = code.upper()
    if upper not in MINOR_UNIT_DECIMALS:
        raise PydanticCustomError(
            "unknown_currency",
            "Input should be the ISO 4217 code of a currency that can be charged",
        )
    return upper


Currency = Annotated[str, AfterValidator(supported_currency)]
"""An ISO 4217 alphabetic code, in upper case whatever the case it came in."""

AmountMinor = Annotated[int, Field(strict=True, ge=1, le=MAX_AMOUNT_MINOR)]
"""A positive integer number of minor units that Stripe can charge at once."""


def in_major_units(amount_minor: int, currency: str) -> str:
    """What a person reads: `in_major_units(1099, "EUR") == "10.99 EUR"`."""
    decimals = MINOR_UNIT_DECIMALS[currency]
    return f"{amount_minor / 10**decimals:,.{decimals}f} {currency}"
