"""One release as a process: all its functions, on an AWS of moto's in this process, one invocation at a time.

It runs in the folder of the release, with the code of the release only, this module included. Each request says what
the tables hold before the invocation, each response what they hold after it: the state belongs to the caller, who can
give it to another release next. Requests and responses are lines of JSON; what they may hold must stay as it is, since
the former release speaks it, too.

    {"invoke": "publish_events", "event": {...}}                        the function's result
    {"deliver": "charge_order", "bodies": ["..."]}                      messages on the function's queue
    {"http": "POST /orders", "body": {...}, "key": "..."}               an HTTP request to orders_api
    {"webhook": "..."}                                                  an event of Stripe's, which is signed here
        … "tables": {"OrdersTable": [item, …]}                          in DynamoDB's JSON, by logical id
    ─► {"result": …, "tables": {…}, "published": ["…"], "dead_letters": ["…"], "counted": ["Alarm", …]}
    ─► {"error": "…"} if the function raises
"""

import hmac
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

import boto3
from moto import mock_aws

from testing.harness import LambdaContext, create_table, load_template, number_of

STRIPE_KEY = "sk_test_two_versions"
_SCOPES = "onecharge/refund"
WEBHOOK_SECRET = "whsec_two_versions"
_GENERATED = "0123456789abcdef" * 4
"""What CloudFormation generates once: the same for both releases."""
_SECRETS = {"StripeWebhookSecretArn": WEBHOOK_SECRET}


class Aws:
    """The resources of template.yaml that functions are given, under their logical ids."""

    def __init__(self) -> None:
        self.resources = load_template()["Resources"]
        self.dynamodb, self.sqs, self.sns = boto3.client("dynamodb"), boto3.client("sqs"), boto3.client("sns")
        self.tables = self._all("AWS::DynamoDB::Table")
        for table in self.tables:
            create_table(self.dynamodb, table, table)
        self.queues = {name: self._queue(name) for name in self._all("AWS::SQS::Queue")}
        self.topics = {name: self._topic(name) for name in self._all("AWS::SNS::Topic")}
        secrets = boto3.client("secretsmanager")
        self.secrets = {
            name: secrets.create_secret(Name=name, SecretString=_SECRETS.get(name, STRIPE_KEY))["ARN"]
            for name in load_template()["Parameters"]
            if name.endswith("SecretArn")
        }
        for name in self._all("AWS::SecretsManager::Secret"):
            self.secrets[name] = secrets.create_secret(Name=name, SecretString=_GENERATED)["ARN"]

    def _all(self, resource_type: str) -> list[str]:
        return [name for name, resource in self.resources.items() if resource["Type"] == resource_type]

    def _queue(self, name: str) -> str:
        return str(self.sqs.create_queue(QueueName=name)["QueueUrl"])

    def _topic(self, name: str) -> str:
        """A topic, and a queue that gets all that is published to it."""
        arn = str(self.sns.create_topic(Name=name)["TopicArn"])
        published = self.sqs.get_queue_attributes(QueueUrl=self._queue(f"Published{name}"), AttributeNames=["QueueArn"])
        endpoint = published["Attributes"]["QueueArn"]
        raw = {"RawMessageDelivery": "true"}
        self.sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=endpoint, Attributes=raw)
        return arn

    def value_of(self, variable: str, text: str) -> str:
        """What CloudFormation makes of a variable's value in the template."""
        referred = text.removeprefix("Ref ").removeprefix("GetAtt ").partition(".")[0]
        known = {**{table: table for table in self.tables}, **self.queues, **self.topics, **self.secrets}
        if referred in known:
            return known[referred]
        if variable == "STRIPE_SECRET_ARN":  # Of the function's own key, or of the one for all: here they are one.
            return self.secrets["StripeSecretArn"]
        if variable == "STRIPE_API_BASE":
            return os.environ["STANDIN_URL"]
        if variable == "REQUIRES_ACTION_SECONDS":
            return "43200"
        return number_of(variable) or referred

    def restore(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Make the tables hold these items, and no others."""
        for table in self.tables:
            keys = [key["AttributeName"] for key in self.resources[table]["Properties"]["KeySchema"]]
            for stored in self.scan(table):
                self.dynamodb.delete_item(TableName=table, Key={key: stored[key] for key in keys})
            for item in tables.get(table, []):
                self.dynamodb.put_item(TableName=table, Item=dict(item))

    def scan(self, table: str) -> list[dict[str, Any]]:
        return list(self.dynamodb.scan(TableName=table)["Items"])

    def drain(self, url: str) -> Iterator[str]:
        """The bodies of all messages of a queue, which are deleted."""
        while messages := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for message in messages:
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                yield message["Body"]

    def received(self, url: str, bodies: Sequence[str]) -> list[dict[str, Any]]:
        """Records of Lambda's event, of messages that were sent to the queue just now."""
        for body in bodies:
            self.sqs.send_message(QueueUrl=url, MessageBody=body)
        return [self._record(url) for _ in bodies]

    def _record(self, url: str) -> dict[str, Any]:
        [message] = self.sqs.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": {**message["Attributes"], "ApproximateReceiveCount": "1"},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": f"arn:aws:sqs:us-east-1:123456789012:{url.rsplit('/', 1)[-1]}",
            "awsRegion": "us-east-1",
        }


class Release:
    """The functions of this folder."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is requested, as the module says."""
        self.aws.restore(request["tables"])
        printed = io.StringIO()
        with redirect_stdout(printed):
            result = self._invoke(request)
        return {
            "result": result,
            "tables": {table: self.aws.scan(table) for table in self.aws.tables},
            "published": [
                body for topic in self.aws.topics for body in self.aws.drain(self.aws._queue(f"Published{topic}"))
            ],
            "dead_letters": [
                body for name, url in self.aws.queues.items() if "Dlq" in name for body in self.aws.drain(url)
            ],
            "counted": sorted(_counted(printed.getvalue())),
        }

    def _invoke(self, request: Mapping[str, Any]) -> Any:
        if "http" in request:
            method, path = request["http"].split(" ")
            answer = self._call("orders_api", _http_event(method, path, request.get("body"), request.get("key")))
            return {"status": answer["statusCode"], "body": json.loads(answer["body"])}
        # optional: webhook
        if "webhook" in request:
            event = _http_event("POST", "/stripe/events", None, None)
            event["body"] = request["webhook"]
            event["headers"]["stripe-signature"] = _signature(request["webhook"])
            return {"status": self._call("stripe_webhook", event)["statusCode"]}
        # end optional
        if "deliver" in request:
            function = request["deliver"]
            [queue] = [value for name, value in self._variables(function).items() if name.endswith("_QUEUE_URL")]
            records = self.aws.received(queue, request["bodies"])
            failures = self._call(function, {"Records": records})["batchItemFailures"]
            failed = {each["itemIdentifier"] for each in failures}
            for record in records:  # Whoever delivers it again sends it again.
                self.aws.sqs.delete_message(QueueUrl=queue, ReceiptHandle=record["receiptHandle"])
            return [record["body"] for record in records if record["messageId"] in failed]
        return self._call(request["invoke"], request["event"])

    def _variables(self, function: str) -> dict[str, str]:
        logical_id = "".join(word.title() for word in function.split("_")) + "Function"
        variables = self.aws.resources[logical_id]["Properties"]["Environment"]["Variables"]
        return {name: self.aws.value_of(name, str(value)) for name, value in variables.items()}

    def _call(self, function: str, event: dict[str, Any]) -> Any:
        os.environ.update(self._variables(function))
        return import_module(f"{function}.app").handler(event, LambdaContext())


def _http_event(method: str, path: str, body: Any, key: str | None) -> dict[str, Any]:
    return {
        "version": "2.0",
        "routeKey": f"{method} {path}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", **({"idempotency-key": key} if key else {})},
        "requestContext": {
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
            "authorizer": {"jwt": {"claims": {"sub": "cus_1", "scope": _SCOPES}, "scopes": None}},
            "requestId": "two-versions",
            "stage": "$default",
        },
        "isBase64Encoded": False,
        **({"body": json.dumps(body)} if body is not None else {}),
    }


# optional: webhook
def _signature(body: str) -> str:
    """As Stripe signs (Stripe documentation, "Verify webhook signatures manually")."""
    now = int(time.time())
    digest = hmac.new(WEBHOOK_SECRET.encode(), f"{now}.{body}".encode(), "sha256").hexdigest()
    return f"t={now},v1={digest}"


# end optional


def _counted(printed: str) -> set[str]:
    """The names of the metrics in what the functions printed (CloudWatch's embedded metric format)."""
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"_aws"') or '"_aws"' in line]
    return {
        metric["Name"]
        for line in lines
        for described in line["_aws"]["CloudWatchMetrics"]
        for metric in described["Metrics"]
    }


def main() -> None:
    """Answer each line of standard input."""
    answers, sys.stdout = sys.stdout, sys.stderr
    with mock_aws():
        release = Release(Aws())
        print(json.dumps("ready"), file=answers, flush=True)
        for line in sys.stdin:
            try:
                answer = release.answer(json.loads(line))
            except Exception:
                answer = {"error": traceback.format_exc()}
            print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
