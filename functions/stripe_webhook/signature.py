"""Verifies that Stripe has signed a request, with Stripe's own library, over the raw body."""

import json
from collections.abc import Sequence
from contextlib import suppress

import stripe

TOLERANCE_SECONDS = 300
"""How old a signature may be (Stripe documentation, "Webhooks", "Preventing replay attacks"). Each delivery is signed
anew, Stripe's own retries too."""

_THIN_EVENT = "v2.core.event"


class NotFromStripe(Exception):
    """The signature is missing, too old, or not of this body and secret. The response does not say which."""


def verified(body: str, signature: str | None, secrets: Sequence[str]) -> stripe.Event | None:
    """The event in the body of a webhook; None for a thin event, which carries only an id.

    A thin event is sent only to an endpoint that subscribes to events of API v2 (Stripe documentation, "Thin events").
    None of them is about a payment, but an answer other than 2xx would have each sent again for days.

    Args:
        body: as it was received: serialized again it would have another signature.
        signature: the header Stripe-Signature, `t=…,v1=…`; with a secret that is being rolled, one for each.
        secrets: the endpoint's signing secrets, `whsec_…`: one of them is enough.

    Raises:
        NotFromStripe: nothing in the body can be trusted.
    """
    try:
        _verify(body, signature, secrets)
        parsed = json.loads(body)
        if isinstance(parsed, dict) and parsed.get("object") == _THIN_EVENT:
            return None
        event = stripe.Event.construct_from(parsed, None)
    except (stripe.SignatureVerificationError, ValueError, TypeError):
        # ValueError: the body is no JSON. TypeError: the signature is not ASCII, and cannot be compared. The library's
        # error holds the body and the signature, so it is not chained.
        raise NotFromStripe from None
    return event


def _verify(body: str, signature: str | None, secrets: Sequence[str]) -> None:
    *others, last = secrets
    for secret in others:
        with suppress(stripe.SignatureVerificationError):
            stripe.WebhookSignature.verify_header(body, signature, secret, TOLERANCE_SECONDS)
            return
    stripe.WebhookSignature.verify_header(body, signature, last, TOLERANCE_SECONDS)
