"""Sends messages of a DLQ back to the queue that they belong to: send, then delete.

SQS cannot do this for us: StartMessageMoveTask moves whole queues, never by reason, and it refuses messages that were
*sent* to a DLQ, as a function and SNS do, unless a destination is named (Amazon SQS API reference).

**Why no redrive charges an order twice, whatever is lost.** A redriven message is one more delivery, and the charge
protocol (docs/protocol.md) takes any number of deliveries, at any age, in any order. The worker that receives it:

    the row is final               the claim is refused: done
    a later attempt has the row    the claim is refused: done
    the row is PENDING             it confirms the order's one PaymentIntent, which Stripe lets succeed once
    the row is lost, < 22 hours    the create is a replay of the same PaymentIntent: Stripe still has its key
    the row is lost, ≥ 22 hours    before anything is confirmed, every PaymentIntent of the order is looked up: one that
                                   succeeded is written down, an open one is canceled, and what is inconclusive waits

The order's age is in the message (`placed_at`, the order's own for every attempt and redrive), so a message that was in
the DLQ for two weeks looks up although nobody else remembers it. Its body is sent as it is, never changed. The same
holds for a refund: it is looked up at Stripe before each request. The advice (advice.py) does not carry this: it is
wrong the moment after it was given, since another delivery may charge the order between the question and the redrive.

**A crash between send and delete** leaves the message in the DLQ, and its copy in the queue: the next redrive makes a
duplicate, which is one more delivery. The other order would lose the message.

On a FIFO queue the message keeps its group. Its deduplication id is new, and derives from the id in the DLQ: if it were
the former one, SQS would drop a message that was sent back, became a dead letter again and is sent back once more
within five minutes; it would be deleted here, and lost. So a repeated redrive of one dead letter is one message within
five minutes, and another dead letter is another message. Redriven messages follow newer ones of their group: an earlier
attempt is superseded.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.connection import Stack
from ops.dead_letters.letter import DeadLetter
from ops.dead_letters.queues import Reading, destination_of

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import SendMessageRequestTypeDef

DEDUPLICATION_PREFIX = "redrive-"


@dataclass(frozen=True)
class Redriven:
    """The result of one message."""

    sent_as: str
    """Its new message id in the queue."""
    is_deleted: bool
    """Whether it left the DLQ; if not, its next redrive is a harmless duplicate."""


def send_back(stack: Stack, letter: DeadLetter, reading: Reading) -> Redriven:
    """Send the message to its queue, then delete it from the DLQ.

    Raises:
        BotoCoreError, ClientError: it was not sent, and is still in the DLQ.
    """
    sent = stack.sqs.send_message(**message_to_send(stack, letter))
    return Redriven(sent["MessageId"], reading.delete(letter))


def message_to_send(stack: Stack, letter: DeadLetter) -> "SendMessageRequestTypeDef":
    """The request that sends the message to its queue, as it was there. Raises ValueError if it belongs to none."""
    destination = destination_of(letter)
    if destination is None:
        raise ValueError(f"{letter.message_id} belongs to no queue")
    url = stack.resource(destination.queue)
    attributes = letter.attributes_to_send
    message: SendMessageRequestTypeDef = {
        "QueueUrl": url,
        "MessageBody": letter.event_json,
        "MessageAttributes": {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()},
    }
    if url.endswith(".fifo"):
        message["MessageGroupId"] = letter.group or letter.order_id or letter.message_id
        message["MessageDeduplicationId"] = f"{DEDUPLICATION_PREFIX}{letter.message_id}"
    return message
