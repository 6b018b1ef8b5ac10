"""The AWS that the functions are measured against: DynamoDB Local behind a counter, ministack, the Stripe stand-in.

The counter adds ReturnConsumedCapacity to each request to DynamoDB, and sums up what DynamoDB Local says: units by
table and index. The functions run in other processes, so that its work is not counted as theirs.
"""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from local.emulator import CREDENTIALS, Emulator, running_emulator
from local.stripe_standin.admin import StandInAdmin
from local.stripe_standin.server import running_standin
from testing.dynamodb_local import dynamodb_client, running_dynamodb_local
from testing.harness import PROJECT, create_table, load_intrinsics

STRIPE_SECONDS = 0.3
"""How long Stripe takes for one request; what the benchmarks of this project assume."""
_TOOLS = PROJECT / ".venv" / "opt"
NAIVE_TABLE, NAIVE_QUEUE = "NaiveTable", "NaiveQueue"
"""Of the naive loop, which has no template: one table without an index, one queue."""
_ANYBODY_MAY_SEND = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": "*"}],
}


class CapacityCounter(ThreadingHTTPServer):
    """Passes requests on to a DynamoDB, and counts the capacity units that they consume."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.port = port
        self.lock = threading.Lock()
        self.units: Counter[str] = Counter()
        super().__init__(("127.0.0.1", 0), _Passing)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def take(self) -> dict[str, float]:
        """What was consumed since the last call: `write orders`, `write orders/by_customer`, `requests`…"""
        with self.lock:
            taken: dict[str, float] = {**self.units}
            self.units.clear()
        return taken


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        server = cast(CapacityCounter, self.server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        operation = self.headers.get("X-Amz-Target", "").partition(".")[2]
        is_counted = body.keys() & {"TableName", "RequestItems", "TransactItems"}
        sent = json.dumps({**body, "ReturnConsumedCapacity": "INDEXES"} if is_counted else body)
        headers = {name: value for name, value in self.headers.items() if name not in ("Content-Length", "Host")}
        connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("POST", "/", sent, headers)
        answer = connection.getresponse()
        payload = answer.read()
        connection.close()
        with server.lock:
            server.units["requests"] += 1
            server.units.update(units_of(operation, json.loads(payload or b"{}")))
        self.send_response(answer.status)
        for name in ("Content-Type", "x-amz-crc32", "x-amzn-RequestId"):
            if value := answer.getheader(name):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: object) -> None:
        pass


def units_of(operation: str, answer: dict[str, Any]) -> dict[str, float]:
    """The capacity units of one response with ReturnConsumedCapacity=INDEXES, by kind, table and index."""
    consumed = answer.get("ConsumedCapacity", [])
    kind = "read" if operation in ("GetItem", "BatchGetItem", "TransactGetItems", "Query", "Scan") else "write"
    found = {}
    for of_table in consumed if isinstance(consumed, list) else [consumed]:  # A list, of several tables at once.
        if "Table" in of_table:
            found[f"{kind} {of_table['TableName']}"] = float(of_table["Table"]["CapacityUnits"])
        for index, of_index in of_table.get("GlobalSecondaryIndexes", {}).items():
            found[f"{kind} {of_table['TableName']}/{index}"] = float(of_index["CapacityUnits"])
    return found


@dataclass
class Aws:
    """Endpoints, and what template.yaml's resources are called on them."""

    emulator: Emulator
    counter: CapacityCounter
    stripe_api_base: str
    dynamodb: Any
    names: dict[str, str] = field(default_factory=dict)

    def name_of(self, logical_id: str) -> str:
        """The name, URL or ARN of a resource of template.yaml, which is made when it is first asked for."""
        if logical_id not in self.names:
            self.names[logical_id] = self._make(logical_id)
        return self.names[logical_id]

    def _make(self, logical_id: str) -> str:
        match load_intrinsics()["Resources"].get(logical_id, {}).get("Type"):
            case _ if logical_id == NAIVE_TABLE:
                return self._naive_table()
            case _ if logical_id == NAIVE_QUEUE:
                return self._queue(logical_id)
            case "AWS::DynamoDB::Table":
                return create_table(self.dynamodb, logical_id, logical_id)
            case "AWS::SQS::Queue":
                return self._queue(logical_id)
            case "AWS::SNS::Topic":
                return str(self.emulator.client("sns").create_topic(Name=logical_id)["TopicArn"])
            case "AWS::SecretsManager::Secret":
                return self.secret(logical_id, "a-key-of-order-ids-that-has-64-characters-as-the-template-says--")
            case _:
                return logical_id

    def _queue(self, name: str) -> str:
        attributes = {"Policy": json.dumps(_ANYBODY_MAY_SEND)}
        return str(self.emulator.client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def _naive_table(self) -> str:
        self.dynamodb.create_table(
            TableName=NAIVE_TABLE,
            AttributeDefinitions=[{"AttributeName": "order_id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "order_id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        return NAIVE_TABLE

    def secret(self, name: str, value: str) -> str:
        secrets = self.emulator.client("secretsmanager")
        return str(secrets.create_secret(Name=name, SecretString=value)["ARN"])

    def environment(self, logical_id: str) -> dict[str, str]:
        """What template.yaml gives the function with its parameters' defaults, and where this AWS is."""
        template = load_intrinsics()
        globals_ = template["Globals"]["Function"]["Environment"]["Variables"]
        own = template["Resources"][logical_id]["Properties"]["Environment"]["Variables"]
        resolved = {name: self._resolved(value) for name, value in {**globals_, **own}.items()}
        return {
            **{name: value for name, value in resolved.items() if value is not None},
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.emulator.endpoint_url,
            "AWS_ENDPOINT_URL_DYNAMODB": self.counter.url,
            "STRIPE_API_BASE": self.stripe_api_base,
        }

    def _resolved(self, value: Any) -> str | None:
        template = load_intrinsics()
        match value:
            case {"Ref": "AWS::NoValue"}:
                return None
            case {"Ref": "AWS::StackName"}:
                return "onecharge"
            case {"Ref": "StripeSecretArn"}:
                return self.names.get("stripe") or self.names.setdefault("stripe", self.secret("stripe", "sk_test_x"))
            case {"Ref": str(name)} if name in template["Parameters"]:
                return str(template["Parameters"][name].get("Default", name))
            case {"Ref": str(name)} | {"GetAtt": str(name)}:
                return self.name_of(name.partition(".")[0])
            case {"If": [_, _, otherwise]}:  # With the defaults no condition of a variable holds.
                return self._resolved(otherwise)
            case {"FindInMap": [str(mapping), _, str(key)]}:
                return str(template["Mappings"][mapping]["live"][key])
            case {"Sub": [str(text), dict(names)]}:
                return self._substituted(text, {name: str(self._resolved(each)) for name, each in names.items()})
            case {"Sub": str(text)}:
                return self._substituted(text, {})
            case {"Join": [str(separator), list(parts)]}:
                return separator.join(str(self._resolved(part)) for part in parts)
            case {"Select": _}:
                return "-"
            case _:
                return str(value)

    def _substituted(self, text: str, names: dict[str, str]) -> str:
        for name in {part.partition("}")[0] for part in text.split("${")[1:]}:
            text = text.replace(f"${{{name}}}", names.get(name) or str(self._resolved({"Ref": name})))
        return text


@contextmanager
def running_aws(work_dir: Path) -> Iterator[Aws]:
    """All of it on free ports of 127.0.0.1, for as long as the block lasts.

    Raises:
        StartupError: a part did not start, or is not installed; says which.
    """
    with ExitStack() as parts:
        emulator = parts.enter_context(running_emulator(python=_TOOLS / "emulator/bin/python", work_dir=work_dir))
        dynamodb_url = parts.enter_context(running_dynamodb_local(work_dir))
        counter = CapacityCounter(int(dynamodb_url.rpartition(":")[2]))
        threading.Thread(target=counter.serve_forever, daemon=True).start()
        parts.callback(counter.server_close)
        parts.callback(counter.shutdown)
        standin = parts.enter_context(running_standin())
        StandInAdmin(standin.base_url).settings(latency_seconds=STRIPE_SECONDS)
        yield Aws(emulator, counter, standin.base_url, dynamodb_client(dynamodb_url))
