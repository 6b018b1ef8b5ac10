"""An SNS that keeps what is published, and refuses what the test names."""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import EndpointConnectionError

from onecharge.contract.events import CancelRequestedEvent, Event, OrderPlacedEvent, PaymentOutcomeEvent, event_adapter
from onecharge.contract.refund_events import RefundOutcomeEvent, RefundRequestedEvent

ANY_EVENT = event_adapter(
    OrderPlacedEvent, CancelRequestedEvent, RefundRequestedEvent, PaymentOutcomeEvent, RefundOutcomeEvent
)


class FakeSns:
    """PublishBatch, as boto3's client has it."""

    def __init__(self) -> None:
        self.published: list[Event] = []
        self.sent: list[tuple[str, dict[str, Any]]] = []
        """The topic and the entry of each published event."""
        self.refuses: Callable[[Event], str | None] = lambda event: None
        """The code with which it refuses an event, if it does."""
        self.down: set[str] = set()
        """The topics to which no request succeeds."""

    def publish_batch(self, *, TopicArn: str, PublishBatchRequestEntries: list[dict[str, Any]]) -> dict[str, Any]:
        assert 1 <= len(PublishBatchRequestEntries) <= 10
        if TopicArn in self.down:
            raise EndpointConnectionError(endpoint_url="https://sns")
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        for entry in PublishBatchRequestEntries:
            event = ANY_EVENT.validate_json(entry["Message"])
            if code := self.refuses(event):
                answer["Failed"].append({"Id": entry["Id"], "Code": code, "SenderFault": code != "Throttled"})
            else:
                self.published.append(event)
                self.sent.append((TopicArn, entry))
                answer["Successful"].append({"Id": entry["Id"], "MessageId": "m"})
        return answer
