"""The AWS that the measured functions see: DynamoDB Local with a latency, a meter, and the few other calls they make.

`python -m benchmarks.speed.aws_server http://127.0.0.1:PORT` prints its address as one line of JSON, and runs until it
is ended. It is a process of its own, so nothing that it does is counted as work of a function.

    DynamoDB_20120810.*               passed on to DynamoDB Local; answered no sooner than the latency after it came in
    secretsmanager.GetSecretValue     the Stripe key
    CheckpointDurableExecution        stored (checkpoints.py), with the same latency
    POST /_bench {"seconds": 0.004, "metering": false}     sets the latency, and starts to count anew
    GET /_bench                       what was counted: requests by name, units, when the first write was answered

Metering asks DynamoDB for the consumed capacity of each request, and takes it out of the answer again. A write whose
condition fails is answered without it, and is metered as what DynamoDB takes: one unit for each KB of the stored item
(Amazon DynamoDB Developer Guide, "DynamoDB read and write operations", "Write operations").
"""

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

from benchmarks.speed.checkpoints import Checkpoints

LIMIT_TABLE = "-stripe-limit"
"""What the name of the table ends with whose item shares Stripe's limit."""

_SECRET = json.dumps(
    {
        "ARN": "arn:aws:secretsmanager:us-east-1:123456789012:secret:stripe",
        "Name": "stripe",
        "VersionId": "00000000-0000-4000-8000-000000000000",
        "SecretString": "sk_test_bench",
        "VersionStages": ["AWSCURRENT"],
        "CreatedDate": 1_790_000_000,
    }
).encode()
_DYNAMODB = "DynamoDB_20120810."
_DURABLE = "POST /2025-12-01/durable-executions/"
_WRITES = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems")
_KB = 1024

Message = tuple[str, dict[str, str], bytes]
"""An HTTP request or response: its first line, its headers (names in lower case), its body."""


class AwsServer:
    """One server for all functions, of which one works at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._configure(seconds=0.0, metering=False)

    def _configure(self, *, seconds: float, metering: bool) -> None:
        self.seconds, self.metering = seconds, metering
        self.requests: Counter[str] = Counter()
        self.checkpoints = Checkpoints()
        self.units = {"read": 0.0, "write": 0.0}
        self.first_write: float | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, over a connection of its own to DynamoDB Local."""
        upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while request := await read_message(reader):
                first, headers, body = request
                target = headers.get("x-amz-target", "")
                if target.startswith(_DYNAMODB):
                    upstream = upstream or await asyncio.open_connection(self._host, self._port)
                    writer.write(await self._dynamodb(target.removeprefix(_DYNAMODB), headers, body, *upstream))
                else:
                    writer.write(await self._other(first, target, body))
                await writer.drain()
        finally:
            for each in (writer, upstream[1] if upstream else None):
                if each:
                    each.close()

    async def _other(self, first: str, target: str, body: bytes) -> bytes:
        if first.startswith("POST /_bench"):
            self._configure(**json.loads(body))
            return response_of(b"{}")
        if first.startswith("GET /_bench"):
            counted = {"requests": self.requests, "units": self.units, "first_write": self.first_write}
            return response_of(json.dumps(counted).encode())
        if first.startswith(_DURABLE):
            self.requests["lambda.CheckpointDurableExecution"] += 1
            await asyncio.sleep(self.seconds)
            return response_of(self.checkpoints.store(first.split(" ")[1], body))
        self.requests[target] += 1
        return response_of(_SECRET if target == "secretsmanager.GetSecretValue" else b"{}")

    async def _dynamodb(
        self,
        operation: str,
        headers: dict[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bytes:
        came = time.monotonic()
        # How many writes take the slots of a batch depends on which threads wait together: they are counted apart.
        self.requests[f"slots.{operation}" if LIMIT_TABLE.encode() in body else operation] += 1
        if self.metering:
            body = json.dumps({**json.loads(body), "ReturnConsumedCapacity": "TOTAL"}).encode()
        passed = ("x-amz-target", "content-type", "authorization", "x-amz-date")
        head = "".join(f"{name}: {headers[name]}\r\n" for name in passed if name in headers)
        writer.write(f"POST / HTTP/1.1\r\nhost: dynamodb\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answered = await read_message(reader)
        if answered is None:
            raise ConnectionError("DynamoDB Local has closed the connection")
        first, answer_headers, answer = answered
        if self.metering:
            answer = self._meter(operation, json.loads(answer))
        if left := max(0.0, self.seconds - (time.monotonic() - came)):
            await asyncio.sleep(left)
        # The slots of Stripe's limit are taken before: the claim is what counts.
        if operation in _WRITES and LIMIT_TABLE.encode() not in body and self.first_write is None:
            self.first_write = time.monotonic()
        kept = dict(answer_headers)
        if self.metering:
            kept.pop("x-amz-crc32", None)
        wanted = ("content-type", "x-amzn-requestid", "x-amz-crc32")
        kept = {name: kept[name] for name in wanted if name in kept}
        return response_of(answer, first.split(" ", 1)[1], kept)

    def _meter(self, operation: str, answer: dict[str, Any]) -> bytes:
        consumed = answer.pop("ConsumedCapacity", [])
        kind = "write" if operation in _WRITES else "read"
        for each in consumed if isinstance(consumed, list) else [consumed]:
            self.units[kind] += each["CapacityUnits"]
        if answer.get("__type", "").endswith("ConditionalCheckFailedException"):
            self.units["write"] += -(-len(json.dumps(answer.get("Item", {}))) // _KB) or 1
        return json.dumps(answer).encode()


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next request or response of the connection; None if there is no other one."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    if headers.get("transfer-encoding") == "chunked":
        return first, headers, await _chunks(reader)
    return first, headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).strip() or b"0", 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


def response_of(body: bytes, status: str = "200 OK", headers: dict[str, str] | None = None) -> bytes:
    """An HTTP response."""
    given = {"content-type": "application/x-amz-json-1.1", **(headers or {}), "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


async def main() -> None:
    """Serve on any free port."""
    host, _, port = sys.argv[1].removeprefix("http://").partition(":")
    server = await asyncio.start_server(AwsServer(host, int(port)).serve, "127.0.0.1", 0)
    [socket] = server.sockets
    print(json.dumps({"url": f"http://127.0.0.1:{socket.getsockname()[1]}"}), flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
