"""The message of a decline that a shop can show to its customer; the decline code itself is for the shop.

Some codes must not be shown to the customer: for `fraudulent`, `lost_card`, `stolen_card`, `merchant_blacklist` and
`pickup_card`, present a generic decline (Stripe documentation, "Decline codes", as of November 2026).
"""

from collections.abc import Mapping

_ANOTHER_CARD = "Please try another card."

_BY_CODES = {
    # Stripe's decline codes.
    "approve_with_id": "The payment could not be authorized. Please try again.",
    "authentication_required": "Your bank wants you to confirm this payment. Please pay again, and confirm it.",
    "card_not_supported": f"This card does not support this kind of purchase. {_ANOTHER_CARD}",
    "card_velocity_exceeded withdrawal_count_limit_exceeded": f"This card has reached its limit. {_ANOTHER_CARD}",
    "currency_not_supported": f"This card does not support this currency. {_ANOTHER_CARD}",
    "duplicate_transaction": "A payment of the same amount with this card was made very recently. "
    "Please check it before you try again.",
    "expired_card": f"This card has expired. {_ANOTHER_CARD}",
    "incorrect_cvc invalid_cvc": "The card's security code is not correct. Please check it and try again.",
    "incorrect_number invalid_number": "The card number is not correct. Please check it and try again.",
    "incorrect_zip": "The postal code is not correct. Please check it and try again.",
    "insufficient_funds": f"This card has insufficient funds. {_ANOTHER_CARD}",
    "invalid_amount": f"This card does not allow a payment of this amount. {_ANOTHER_CARD}",
    "invalid_expiry_month invalid_expiry_year": "The card's expiry date is not correct. Please check it and try again.",
    "issuer_not_available": "The bank that issued this card could not be reached. Please try again later.",
    "payment_intent_authentication_failure": "Your bank could not confirm that it is you. Please try again.",
    "processing_error": "The card could not be processed. Please try again.",
    "reenter_transaction": "The bank could not process the payment. Please try again.",
    "try_again_later": "The card could not be processed. Please try again later.",
    # The payment service's own: Stripe does not accept the payment method.
    "payment_method_customer_decline": "The payment was not approved. Please approve it, or try another card.",
    "payment_method_of_another_customer": f"This card cannot be used for this order. {_ANOTHER_CARD}",
    "payment_method_provider_decline": f"The provider of this payment method declined. {_ANOTHER_CARD}",
    "payment_method_unactivated": f"This kind of payment is not available here. {_ANOTHER_CARD}",
    "payment_method_unknown": "The card's details were not found. Please enter them again.",
    "payment_method_used": "The card's details can be used only once. Please enter them again.",
}
MESSAGES: Mapping[str, str] = {code: message for codes, message in _BY_CODES.items() for code in codes.split()}

DECLINED = f"The card was declined. {_ANOTHER_CARD}"
"""The message for every other code, and for those that must not be shown."""


def message_for(decline_code: str | None) -> str:
    """The message for a decline code, or for none."""
    return MESSAGES.get(decline_code or "", DECLINED)
