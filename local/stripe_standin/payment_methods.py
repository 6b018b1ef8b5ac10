"""Stripe's test payment methods, and what each of them does. Source: Stripe documentation, "Test card numbers"."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Succeeds:
    """The card is charged."""


@dataclass(frozen=True)
class Declines:
    """The issuer says no, with this error code and decline code."""

    code: str
    decline_code: str


@dataclass(frozen=True)
class AsksForAuthentication:
    """The issuer wants 3-D Secure: the customer has to act."""


Behaviour = Succeeds | Declines | AsksForAuthentication

BEHAVIOURS: Mapping[str, Behaviour] = {
    **{
        f"pm_card_{brand}": Succeeds()
        for brand in (
            "visa visa_debit mastercard mastercard_debit mastercard_prepaid amex discover diners jcb unionpay"
        ).split()
    },
    "pm_card_chargeDeclined": Declines("card_declined", "generic_decline"),
    "pm_card_visa_chargeDeclined": Declines("card_declined", "generic_decline"),
    "pm_card_visa_chargeDeclinedInsufficientFunds": Declines("card_declined", "insufficient_funds"),
    "pm_card_visa_chargeDeclinedLostCard": Declines("card_declined", "lost_card"),
    "pm_card_visa_chargeDeclinedStolenCard": Declines("card_declined", "stolen_card"),
    "pm_card_visa_chargeDeclinedFraudulent": Declines("card_declined", "fraudulent"),
    "pm_card_visa_chargeDeclinedVelocityLimitExceeded": Declines("card_declined", "card_velocity_exceeded"),
    "pm_card_chargeDeclinedInsufficientFunds": Declines("card_declined", "insufficient_funds"),
    "pm_card_chargeDeclinedFraudulent": Declines("card_declined", "fraudulent"),
    "pm_card_chargeDeclinedExpiredCard": Declines("expired_card", "expired_card"),
    "pm_card_chargeDeclinedIncorrectCvc": Declines("incorrect_cvc", "incorrect_cvc"),
    "pm_card_chargeDeclinedProcessingError": Declines("processing_error", "processing_error"),
    "pm_card_authenticationRequired": AsksForAuthentication(),
    "pm_card_threeDSecureRequired": AsksForAuthentication(),
    "pm_card_threeDSecure2Required": AsksForAuthentication(),
}
