"""Stripe's test payment methods and their behavior.

Source: Stripe documentation, "Testing" (names, codes and decline codes of PaymentMethods); "Decline codes" (advice).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Declines:
    """The issuer declines, with this error code, decline code and advice code."""

    code: str = "card_declined"
    decline_code: str | None = "generic_decline"
    message: str = "Your card was declined."
    advice_code: str | None = "try_again_later"


@dataclass(frozen=True)
class Card:
    """One test payment method, by the number that a customer can type into a card form."""

    number: str
    declines: Declines | None = None
    brand: str = "visa"
    asks_customer: bool = False
    """Whether the issuer requires 3-D Secure: the payment succeeds once the customer has authenticated."""
    refund_fails: bool = False
    """Whether a refund fails some time after it has succeeded."""


_GENERIC = Declines()
_NO_FUNDS = Declines(decline_code="insufficient_funds", message="Your card has insufficient funds.")
_LOST = Declines(decline_code="lost_card", advice_code="do_not_try_again")
_EXPIRED = Declines("expired_card", None, "Your card has expired.", "do_not_try_again")

TEST_CARDS: Mapping[str, Card] = {
    "pm_card_visa": Card("4242424242424242"),
    "pm_card_mastercard": Card("5555555555554444", brand="mastercard"),
    "pm_card_amex": Card("378282246310005", brand="amex"),
    "pm_card_chargeDeclined": Card("4000000000000002", _GENERIC),
    "pm_card_visa_chargeDeclined": Card("4000000000000002", _GENERIC),
    "pm_card_visa_chargeDeclinedInsufficientFunds": Card("4000000000009995", _NO_FUNDS),
    "pm_card_visa_chargeDeclinedLostCard": Card("4000000000009987", _LOST),
    "pm_card_chargeDeclinedExpiredCard": Card("4000000000000069", _EXPIRED),
    "pm_card_refundFail": Card("4000000000005126", refund_fails=True),
    "pm_card_authenticationRequired": Card("4000002760003184", asks_customer=True),
    "pm_card_threeDSecure2Required": Card("4000000000003220", asks_customer=True),
}
CARD_NUMBERS: Mapping[str, str] = {card.number: name for name, card in TEST_CARDS.items()}
"""The name of the test card that has a number."""
