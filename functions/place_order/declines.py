"""What a shop may tell its customer of a decline. Stripe's code stays for the shop itself.

Some codes are not for the customer: what the issuer suspects is the issuer's business (Stripe documentation, "Decline
codes": for `fraudulent`, `lost_card`, `stolen_card` and the like, present a generic decline).
"""

from collections.abc import Mapping

_ANOTHER_CARD = "Please try another card."

MESSAGES: Mapping[str, str] = {
    "authentication_required": "Your bank wants you to confirm this payment. Please try again.",
    "card_not_supported": f"This card does not support this kind of purchase. {_ANOTHER_CARD}",
    "card_velocity_exceeded": f"This card has reached its limit. {_ANOTHER_CARD}",
    "currency_not_supported": f"This card does not support this currency. {_ANOTHER_CARD}",
    "expired_card": f"This card has expired. {_ANOTHER_CARD}",
    "incorrect_cvc": "The card's security code is not correct. Please check it and try again.",
    "incorrect_number": "The card number is not correct. Please check it and try again.",
    "insufficient_funds": f"This card has insufficient funds. {_ANOTHER_CARD}",
    "invalid_expiry_month": "The card's expiry date is not correct. Please check it and try again.",
    "invalid_expiry_year": "The card's expiry date is not correct. Please check it and try again.",
    "payment_intent_authentication_failure": "Your bank could not confirm that it is you. Please try again.",
    "processing_error": "The card could not be processed. Please try again.",
    "try_again_later": "The card could not be processed. Please try again later.",
    "withdrawal_count_limit_exceeded": f"This card has reached its limit. {_ANOTHER_CARD}",
}

DECLINED = f"The card was declined. {_ANOTHER_CARD}"
"""For every code that is not listed above, and for those that are not for the customer."""


def message_for(decline_code: str | None) -> str:
    """The decline in words that a shop can show."""
    return MESSAGES.get(decline_code or "", DECLINED)
