"""PaymentMethods. Source: Stripe API reference, "PaymentMethods"; Stripe documentation, "Testing".

pm_card_visa is the name of a test card, not the id of a PaymentMethod: each use creates a new PaymentMethod, so the
name works any number of times. Any other PaymentMethod pays once: there are no Customers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from stripe_standin.account import Account
from stripe_standin.cards import CARD_NUMBERS, TEST_CARDS, Card
from stripe_standin.errors import ApiError, invalid, missing_parameter, refused
from stripe_standin.messages import Request
from stripe_standin.parameters import allow

USED_UP = (
    "The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared with a "
    "connected account without Customer attachment, or was detached from a Customer. It may not be used again. To use "
    "a PaymentMethod multiple times, you must attach it to a Customer first."
)

NO_BILLING_DETAILS: Mapping[str, Any] = {
    "address": dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state")),
    **dict.fromkeys(("email", "name", "phone", "tax_id")),
}
_CONSTANT = {
    "object": "payment_method",
    "allow_redisplay": "unspecified",
    "billing_details": NO_BILLING_DETAILS,
    "customer": None,
    "customer_account": None,
    "livemode": False,
    "metadata": {},
    "type": "card",
}


@dataclass
class PaymentMethod:
    """A card; one that no customer has pays once."""

    named: ClassVar = ("PaymentMethod", "payment_method")
    id: str
    created: int
    behaves_like: str
    """The name of a test card, a key of TEST_CARDS."""
    used_up: bool = False
    is_attached: bool = False
    """To a customer, so that it pays any number of times. No request attaches it."""

    @property
    def card(self) -> Card:
        return TEST_CARDS[self.behaves_like]

    def as_json(self) -> dict[str, Any]:
        card = {
            **self.card_details(),
            "display_brand": self.card.brand,
            "generated_from": None,
            "networks": {"available": [self.card.brand], "preferred": None},
            "three_d_secure_usage": {"supported": True},
        }
        return {**_CONSTANT, "id": self.id, "card": card, "created": self.created}

    def card_details(self) -> dict[str, Any]:
        """The card fields that a PaymentMethod and a Charge share."""
        return {
            "brand": self.card.brand,
            "checks": dict.fromkeys(("address_line1_check", "address_postal_code_check", "cvc_check")),
            "country": "US",
            "exp_month": 12,
            "exp_year": 2034,
            "fingerprint": f"stand_in_{self.card.brand}_{self.card.number[-4:]}",
            "funding": "credit",
            "last4": self.card.number[-4:],
            "regulated_status": "unregulated",
            "wallet": None,
        }


def create(account: Account, request: Request) -> dict[str, Any]:
    """POST /v1/payment_methods with one of Stripe's test tokens: tok_visa behaves like pm_card_visa.

    A page sends the number that its customer has typed, with a publishable key.
    """
    parameters = allow(request, r"type|card\[(token|number|exp_month|exp_year|cvc)\]")
    if parameters.get("type") != "card":
        raise invalid("The stand-in supports cards only.", param="type")
    return new(account, _typed(parameters) if request.is_of_a_page else _tokenized(parameters)).as_json()


def _typed(parameters: Mapping[str, str]) -> str:
    name = CARD_NUMBERS.get(parameters.get("card[number]", ""))
    if name is None:
        raise ApiError(402, "card_error", "Your card number is incorrect.", code="incorrect_number", param="number")
    return name


def _tokenized(parameters: Mapping[str, str]) -> str:
    if "card[number]" in parameters:
        raise invalid("Sending credit card numbers directly to the Stripe API is generally unsafe.")
    token = parameters.get("card[token]", "")
    name = f"pm_card_{token.removeprefix('tok_')}"
    if not token.startswith("tok_") or name not in TEST_CARDS:
        raise missing_parameter("token", token, "card[token]")
    return name


def new(account: Account, behaves_like: str) -> PaymentMethod:
    method = PaymentMethod(account.ids.new("pm"), account.now, behaves_like)
    account.all(PaymentMethod)[method.id] = method
    return method


def resolve(account: Account, identifier: str) -> PaymentMethod:
    """The PaymentMethod that a parameter names; a new one for the name of a test card."""
    if identifier in account.all(PaymentMethod):
        return account.all(PaymentMethod)[identifier]
    if identifier in TEST_CARDS:
        return new(account, identifier)
    if account.cards_of and (shared := account.cards_of.all(PaymentMethod).get(identifier)):
        return new(account, shared.behaves_like)
    raise missing_parameter("PaymentMethod", identifier, "payment_method")


def check_usable(method: PaymentMethod, payment_intent: dict[str, Any] | None) -> None:
    """Raises ApiError if it has paid already. The message is as recorded from test mode by others (README.md)."""
    if method.used_up:
        raise refused(USED_UP, payment_intent=payment_intent)
