"""An event of Stripe's as EventBridge delivers it: Stripe's Event object in an envelope.

There is no signature. AWS vouches for the sender: only Stripe's AWS account can put events with this `source`
(PutPartnerEvents), since a source that begins with `aws.` is refused to everybody else. A partner event source belongs
to one event destination, so to one Stripe account and mode; and it was made for one AWS account, which accepted it. The
rule's pattern passes on that source alone. The queue's policy admits this rule alone; whoever else of the account has
sqs:SendMessage on everything can send to it, and gets nothing but a dispute's status believed: all else is retrieved
from Stripe. Source: Stripe documentation, "Send events to Amazon EventBridge", "Event structure"; Amazon EventBridge
User Guide, "Receiving events from a SaaS partner"; Amazon EventBridge API Reference, "PutEventsRequestEntry".
"""

import re
from typing import Any

import stripe
from pydantic import BaseModel, ConfigDict, Field

from onecharge.contract.events import ORDER_ID_PATTERN, READ_FROM_JSON
from onecharge.payments.stripe_events import EVENT_TYPES
from onecharge.runtime.consumer import PoisonMessage

_SNAPSHOT = "event"


class PartnerEvent(BaseModel):
    """The envelope. What this does not need is ignored, as AWS may add to it."""

    model_config = READ_FROM_JSON | ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True)

    id: str = Field(min_length=1, max_length=255)
    source: str
    account: str
    detail_type: str = Field(alias="detail-type")
    detail: dict[str, Any]

    @property
    def type(self) -> str:
        """The type of the event, for logs and traces: only a known one, since others may fill the field."""
        return self.detail_type if self.detail_type in EVENT_TYPES else "another event of Stripe's"

    @property
    def subject(self) -> str | None:
        """The order that it is about, if its object names one in its metadata."""
        match self.detail:
            case {"data": {"object": {"metadata": {"order_id": str(order_id)}}}} if re.match(
                ORDER_ID_PATTERN, order_id
            ):
                return order_id
        return None

    @property
    def log_fields(self) -> dict[str, Any]:
        """What a log line about it carries; never the object, which may hold a client secret."""
        return {"order_id": self.subject, "event_type": self.type}

    def event_from(self, source: str) -> stripe.Event | None:
        """Stripe's event; None for a thin one, which carries only an id, and is never about a payment.

        Args:
            source: the name of the partner event source, `aws.partner/stripe.com/ed_…`.

        Raises:
            PoisonMessage: it is not from there.
        """
        if self.source != source:
            raise PoisonMessage("source: not this stack's partner event source")
        if self.detail.get("type") != self.detail_type:
            raise PoisonMessage("detail-type: not the type of the event")
        return stripe.Event.construct_from(self.detail, None) if self.detail.get("object") == _SNAPSHOT else None
