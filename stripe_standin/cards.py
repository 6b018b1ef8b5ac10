"""Stripe's test payment methods and their behavior.

Source: Stripe documentation, "Testing" (names, codes and decline codes of PaymentMethods); "Decline codes" (advice).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class Succeeds:
    """The payment succeeds."""


@dataclass(frozen=True)
class Declines:
    """The issuer declines, with this error code, decline code and advice code."""

    code: str = "card_declined"
    decline_code: str | None = "generic_decline"
    message: str = "Your card was declined."
    advice_code: str | None = "try_again_later"
    param: str | None = None
    blocked: bool = False
    """Blocked by Radar: the issuer never receives the payment."""


@dataclass(frozen=True)
class RequiresAuthentication:
    """The issuer requires 3-D Secure; `then` is the result once the customer has authenticated."""

    then: Succeeds | Declines = Succeeds()
    off_session: Succeeds | Declines | None = None
    """The result off session; None is a decline with authentication_required."""


CardBehavior = Succeeds | Declines | RequiresAuthentication


class LateRefund(StrEnum):
    """How a refund ends, some time after it was created."""

    SUCCEEDS = "succeeds"
    """From `pending` to `succeeded`."""
    FAILS = "fails"
    """From `succeeded` to `failed`."""


@dataclass(frozen=True)
class Card:
    """One test payment method."""

    behavior: CardBehavior = Succeeds()
    brand: str = "visa"
    last4: str = "4242"
    funding: str = "credit"
    country: str = "US"
    """Stripe refuses to attach cards that decline, except pm_card_chargeCustomerFail."""
    late_refund: LateRefund | None = None
    dispute_reason: str | None = None


def _declines(last4: str, declines: Declines) -> Card:
    return Card(declines, last4=last4)


_GENERIC = Declines()
_INSUFFICIENT_FUNDS = Declines(decline_code="insufficient_funds", message="Your card has insufficient funds.")
_FRAUDULENT = Declines(decline_code="fraudulent", advice_code="do_not_try_again", blocked=True)
_PROCESSING_ERROR = Declines(
    "processing_error", None, "An error occurred while processing your card. Try again in a little bit."
)
_INCORRECT_CVC = Declines(
    "incorrect_cvc", None, "Your card's security code is incorrect.", "confirm_card_data", param="cvc"
)
_VELOCITY = Declines(
    decline_code="card_velocity_exceeded",
    message="Your card was declined for making repeated attempts too frequently or exceeding its amount limit.",
)

_BRANDS: Mapping[str, tuple[str, str, str]] = {
    "visa": ("visa", "4242", "credit"),
    "visa_debit": ("visa", "5556", "debit"),
    "mastercard": ("mastercard", "4444", "credit"),
    "mastercard_debit": ("mastercard", "8210", "debit"),
    "mastercard_prepaid": ("mastercard", "5100", "prepaid"),
    "amex": ("amex", "8431", "credit"),
    "discover": ("discover", "1117", "credit"),
    "diners": ("diners", "0004", "credit"),
    "jcb": ("jcb", "0505", "credit"),
    "unionpay": ("unionpay", "0005", "credit"),
}

TEST_CARDS: Mapping[str, Card] = {
    **{
        f"pm_card_{name}": Card(brand=brand, last4=last4, funding=funding)
        for name, (brand, last4, funding) in _BRANDS.items()
    },
    # Declined payments.
    "pm_card_chargeDeclined": _declines("0002", _GENERIC),
    "pm_card_visa_chargeDeclined": _declines("0002", _GENERIC),
    "pm_card_chargeDeclinedInsufficientFunds": _declines("9995", _INSUFFICIENT_FUNDS),
    "pm_card_visa_chargeDeclinedInsufficientFunds": _declines("9995", _INSUFFICIENT_FUNDS),
    "pm_card_visa_chargeDeclinedLostCard": _declines(
        "9987", Declines(decline_code="lost_card", advice_code="do_not_try_again")
    ),
    "pm_card_visa_chargeDeclinedStolenCard": _declines(
        "9979", Declines(decline_code="stolen_card", advice_code="do_not_try_again")
    ),
    "pm_card_chargeDeclinedExpiredCard": _declines(
        "0069", Declines("expired_card", None, "Your card has expired.", "do_not_try_again", param="exp_month")
    ),
    "pm_card_chargeDeclinedIncorrectCvc": _declines("0127", _INCORRECT_CVC),
    "pm_card_chargeDeclinedProcessingError": _declines("0119", _PROCESSING_ERROR),
    "pm_card_visa_chargeDeclinedVelocityLimitExceeded": _declines("6975", _VELOCITY),
    "pm_card_chargeDeclinedFraudulent": _declines("0019", _FRAUDULENT),
    "pm_card_visa_chargeDeclinedFraudulent": _declines("0019", _FRAUDULENT),
    "pm_card_chargeCustomerFail": Card(_GENERIC, last4="0341"),
    # Fraud prevention.
    "pm_card_radarBlock": _declines("0019", _FRAUDULENT),
    # Disputes.
    "pm_card_createDispute": Card(last4="0259", dispute_reason="fraudulent"),
    "pm_card_createDisputeProductNotReceived": Card(last4="2685", dispute_reason="product_not_received"),
    # Refunds.
    "pm_card_pendingRefund": Card(last4="7726", late_refund=LateRefund.SUCCEEDS),
    "pm_card_refundFail": Card(last4="5126", late_refund=LateRefund.FAILS),
    # Available balance.
    "pm_card_bypassPending": Card(last4="0077"),
    # 3-D Secure.
    "pm_card_authenticationRequiredOnSetup": Card(RequiresAuthentication(), last4="3155"),
    "pm_card_authenticationRequired": Card(RequiresAuthentication(), last4="3184"),
    "pm_card_authenticationRequiredSetupForOffSession": Card(
        RequiresAuthentication(off_session=Succeeds()), last4="0446"
    ),
    "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds": Card(
        RequiresAuthentication(then=_INSUFFICIENT_FUNDS), last4="3178"
    ),
    "pm_card_threeDSecureRequired": Card(RequiresAuthentication(), last4="3063"),
    "pm_card_threeDSecure2Required": Card(RequiresAuthentication(), last4="3220"),
    "pm_card_threeDSecureRequiredChargeDeclined": Card(RequiresAuthentication(then=_GENERIC), last4="1629"),
    "pm_card_threeDSecureRequiredProcessingError": _declines("1280", _GENERIC),
    "pm_card_threeDSecureOptional": Card(last4="3055"),
    "pm_card_amex_threeDSecureNotSupported": Card(brand="amex", last4="0005"),
}

CARD_NUMBERS: Mapping[str, str] = {
    "4242424242424242": "pm_card_visa",
    "4000056655665556": "pm_card_visa_debit",
    "5555555555554444": "pm_card_mastercard",
    "378282246310005": "pm_card_amex",
    "4000000000000002": "pm_card_chargeDeclined",
    "4000000000009995": "pm_card_chargeDeclinedInsufficientFunds",
    "4000000000009987": "pm_card_visa_chargeDeclinedLostCard",
    "4000000000009979": "pm_card_visa_chargeDeclinedStolenCard",
    "4000000000000069": "pm_card_chargeDeclinedExpiredCard",
    "4000000000000127": "pm_card_chargeDeclinedIncorrectCvc",
    "4000000000000119": "pm_card_chargeDeclinedProcessingError",
    "4000000000006975": "pm_card_visa_chargeDeclinedVelocityLimitExceeded",
    "4100000000000019": "pm_card_radarBlock",
    "4000000000000259": "pm_card_createDispute",
    "4000000000007726": "pm_card_pendingRefund",
    "4000000000005126": "pm_card_refundFail",
    "4000002760003184": "pm_card_authenticationRequired",
    "4000008260003178": "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds",
    "4000000000003220": "pm_card_threeDSecure2Required",
    "4000008400001629": "pm_card_threeDSecureRequiredChargeDeclined",
}
"""The test cards that a customer can type into a card form (Stripe documentation, "Testing")."""
