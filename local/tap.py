"""A queue beside the system's own: it receives each order event that the system publishes."""

import json
from dataclasses import dataclass

from local.stack import Stack


@dataclass(frozen=True)
class Tap:
    """The queue, and its subscription to the topic of order events."""

    url: str
    subscription_arn: str


def open_tap(stack: Stack, name: str, **attributes: str) -> Tap:
    """Create the queue, allow the topic to send to it, and subscribe it; `attributes` are the subscription's."""
    sqs, sns, topic = stack.aws.client("sqs"), stack.aws.client("sns"), stack.order_events_topic_arn
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    allowed = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    subscribed = sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn,
        Attributes={"RawMessageDelivery": "true", **attributes},
        ReturnSubscriptionArn=True,
    )
    return Tap(url, subscribed["SubscriptionArn"])
