"""Money on the wire: an integer number of minor units, and an ISO 4217 currency that Stripe can charge.

An amount is never a float and never a decimal string: 1099 with "eur" is 10.99 euro, 500 with "jpy" is 500 yen.
"""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

MAX_AMOUNT_MINOR = 99_999_999
"""The largest amount that Stripe accepts for a charge in most currencies: eight digits of the minor unit.
Source: Stripe documentation, "Supported currencies", minimum and maximum charge amounts."""

CURRENCIES = frozenset(
    (
        "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BWP BYN BZD CAD CDF CHF CLP "
        "CNY COP CRC CVE CZK DJF DKK DOP DZD EGP ETB EUR FJD FKP GBP GEL GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS "
        "INR ISK JMD JOD JPY KES KGS KHR KMF KRW KWD KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MUR MVR "
        "MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SEK "
        "SGD SHP SLE SOS SRD STD SZL THB TJS TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VND VUV WST XAF XCD XOF XPF "
        "YER ZAR ZMW"
    ).split()
)
"""The ISO 4217 codes of the currencies that Stripe charges in. Source: Stripe documentation, "Supported currencies"."""


def supported_currency(code: str) -> str:
    """Return the ISO 4217 code in upper case; raises a validation error that does not repeat the input."""
    upper = code.upper()
    if upper not in CURRENCIES:
        raise PydanticCustomError(
            "unknown_currency",
            "Input should be the ISO 4217 code of a currency that can be charged",
        )
    return upper


Currency = Annotated[str, AfterValidator(supported_currency)]
"""An ISO 4217 alphabetic code, in upper case whatever the case it came in."""

AmountMinor = Annotated[int, Field(strict=True, ge=1, le=MAX_AMOUNT_MINOR)]
"""A positive integer number of minor units that Stripe can charge at once."""
