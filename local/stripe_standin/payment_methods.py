"""PaymentMethods. Source: Stripe API reference, "PaymentMethods"; Stripe documentation, "Testing".

pm_card_visa is the name of a test card, not the id of a PaymentMethod: each use creates a new PaymentMethod, so the
name works any number of times. Any other PaymentMethod without a customer pays once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local.stripe_standin.account import Account
from local.stripe_standin.cards import CARD_NUMBERS, TEST_CARDS, Card, Declines
from local.stripe_standin.errors import ApiError, invalid, missing, missing_parameter, refused
from local.stripe_standin.messages import Request
from local.stripe_standin.parameters import METADATA, allow, metadata_of

USED_UP = (
    "The provided PaymentMethod was previously used with a PaymentIntent without Customer attachment, shared with a "
    "connected account without Customer attachment, or was detached from a Customer. It may not be used again. To use "
    "a PaymentMethod multiple times, you must attach it to a Customer first."
)

NO_ADDRESS: Mapping[str, None] = dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state"))
NO_BILLING_DETAILS: Mapping[str, Any] = {
    "address": NO_ADDRESS,
    **dict.fromkeys(("email", "name", "phone", "tax_id")),
}


@dataclass
class PaymentMethod:
    """A card. Without a customer it pays once."""

    id: str
    created: int
    behaves_like: str
    """The name of a test card, a key of TEST_CARDS."""
    customer: str | None = None
    used_up: bool = False
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def card(self) -> Card:
        return TEST_CARDS[self.behaves_like]

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "payment_method",
            "allow_redisplay": "unspecified",
            "billing_details": {**NO_BILLING_DETAILS, "address": dict(NO_ADDRESS)},
            "card": self._card_json(),
            "created": self.created,
            "customer": self.customer,
            "customer_account": None,
            "livemode": False,
            "metadata": dict(self.metadata),
            "type": "card",
        }

    def _card_json(self) -> dict[str, Any]:
        return {
            **self.card_details(),
            "display_brand": self.card.brand,
            "generated_from": None,
            "networks": {"available": [self.card.brand], "preferred": None},
            "three_d_secure_usage": {"supported": True},
        }

    def card_details(self) -> dict[str, Any]:
        """The card fields that a PaymentMethod and a Charge share."""
        return {
            "brand": self.card.brand,
            "checks": dict.fromkeys(("address_line1_check", "address_postal_code_check", "cvc_check")),
            "country": self.card.country,
            "exp_month": 12,
            "exp_year": 2034,
            "fingerprint": f"stand_in_{self.card.brand}_{self.card.last4}",
            "funding": self.card.funding,
            "last4": self.card.last4,
            "regulated_status": "unregulated",
            "wallet": None,
        }


def create(account: Account, request: Request) -> dict[str, Any]:
    """POST /v1/payment_methods with one of Stripe's test tokens: tok_visa behaves like pm_card_visa.

    A page sends the number that its customer has typed, with a publishable key.
    """
    parameters = allow(request, r"type|card\[(token|number|exp_month|exp_year|cvc)\]", METADATA)
    if parameters.get("type") != "card":
        raise invalid("The stand-in supports cards only.", param="type")
    method = new(account, _typed(parameters) if request.is_of_a_page else _tokenized(parameters))
    method.metadata = metadata_of(parameters)
    return method.as_json()


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


def retrieve(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    allow(request)
    return find(account, identifier).as_json()


def attach(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """POST /v1/payment_methods/{id}/attach: reusable from now on, by this customer."""
    parameters = allow(request, "customer")
    if "customer" not in parameters:
        raise invalid("Missing required param: customer.", param="customer", code="parameter_missing")
    customer = customer_of(account, parameters)
    method = resolve(account, identifier) if identifier in TEST_CARDS else find(account, identifier)
    if method.customer is not None:
        raise refused("The payment method you provided has already been attached to a customer.")
    if method.used_up:
        raise refused(
            "This PaymentMethod was previously used without being attached to a Customer or was detached from a "
            "Customer, and may not be used again."
        )
    if not method.card.attachable:
        raise _cannot_be_attached(method)
    method.customer = customer
    account.emit("payment_method.attached", method.as_json())
    return method.as_json()


def detach(account: Account, request: Request, identifier: str) -> dict[str, Any]:
    """POST /v1/payment_methods/{id}/detach: unusable from now on."""
    allow(request)
    method = find(account, identifier)
    if method.customer is None:
        raise refused("The payment method you provided is not attached to a customer so detachment is impossible.")
    before, method.customer, method.used_up = method.customer, None, True
    account.emit("payment_method.detached", method.as_json(), {"customer": before})
    return method.as_json()


def new(account: Account, behaves_like: str) -> PaymentMethod:
    method = PaymentMethod(account.ids.new("pm"), account.now, behaves_like)
    account.payment_methods[method.id] = method
    return method


def find(account: Account, identifier: str) -> PaymentMethod:
    if identifier not in account.payment_methods:
        raise missing("PaymentMethod", identifier, "payment_method")
    return account.payment_methods[identifier]


def resolve(account: Account, identifier: str) -> PaymentMethod:
    """The PaymentMethod that a parameter names; a new one for the name of a test card."""
    if identifier in account.payment_methods:
        return account.payment_methods[identifier]
    if identifier in TEST_CARDS:
        return new(account, identifier)
    raise missing_parameter("PaymentMethod", identifier, "payment_method")


def check_usable(method: PaymentMethod, customer: str | None, payment_intent: dict[str, Any] | None) -> None:
    """Raises ApiError if a PaymentIntent of this customer, or without one, cannot be paid with it.

    Messages, codes and params are as recorded from test mode by others (README.md).
    """
    if method.customer is not None and customer is None:
        raise refused(
            f"The `payment_method` parameter supplied {method.id} belongs to the Customer {method.customer}. Please "
            "include the Customer in the `customer` parameter on the PaymentIntent.",
            code="parameter_missing",
            param="source",
            payment_intent=payment_intent,
        )
    if method.customer is not None and method.customer != customer:
        raise refused(
            f"The PaymentMethod {method.id} does not belong to the Customer you supplied {customer}. Please use this "
            "PaymentMethod with the Customer that it belongs to instead.",
            param="payment_method",
            payment_intent=payment_intent,
        )
    if method.used_up:
        raise refused(USED_UP, payment_intent=payment_intent)


def customer_of(account: Account, parameters: Mapping[str, str]) -> str | None:
    """The customer that a parameter names. There are no Customer objects."""
    customer = parameters.get("customer")
    if customer is not None and not customer.startswith("cus_"):
        raise missing_parameter("customer", customer, "customer")
    return customer


def _cannot_be_attached(method: PaymentMethod) -> ApiError:
    declines = method.card.behavior if isinstance(method.card.behavior, Declines) else Declines()
    return ApiError(
        402,
        "card_error",
        declines.message,
        stored=True,
        code=declines.code,
        decline_code=declines.decline_code,
        param=declines.param,
    )
