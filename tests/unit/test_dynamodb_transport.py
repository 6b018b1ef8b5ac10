"""Requests to DynamoDB: sent as botocore sends them, with the same result when a connection fails.

botocore's own way is the model: both clients are given the same servers.
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import socket
from threading import Barrier
from typing import Any
from unittest.mock import patch
from zlib import crc32

import botocore.session
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from cryptography import x509

from onecharge.runtime.aws import BATCH_SIZE, dynamodb_client
from testing.certificates import LOCALHOST, https_server
from testing.stripe_answers import Break, StripeAnswers

PATIENT, IMPATIENT, IN_BETWEEN = 30.0, 0.5, 3.0
"""Seconds. Nothing waits for the first but a machine that is busy. Within the last a busy one answers, too."""
KEY_ID, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "a token/of+a role="
Client = Callable[..., Any]


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no certificates of this machine's, and no pause of botocore's between its tries."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "aws_ca_bundle", "requests_ca_bundle"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)


@pytest.fixture
def answers() -> Iterator[StripeAnswers]:
    with StripeAnswers() as server:
        yield server


def session() -> botocore.session.Session:
    made = botocore.session.Session()
    made.set_credentials(KEY_ID, SECRET, TOKEN)
    made.set_config_variable("region", "eu-central-1")
    return made


def ours(url: str, seconds: float = PATIENT) -> Any:
    with patch.dict("os.environ", AWS_ENDPOINT_URL_DYNAMODB=url):
        return dynamodb_client(session(), config(seconds))


def the_model(url: str, seconds: float = PATIENT) -> Any:
    return session().create_client("dynamodb", endpoint_url=url, config=config(seconds))


def config(read_seconds: float, connect_seconds: float = PATIENT) -> Config:
    retries: Any = {"mode": "standard", "total_max_attempts": 2}
    return Config(connect_timeout=connect_seconds, read_timeout=read_seconds, retries=retries)


def patience(broken: Break, impatient: float = IMPATIENT) -> float:
    return impatient if broken in (Break.SILENT, Break.STALLED) else PATIENT


def put(client: Any) -> str:
    """How many tries it took, or how it failed."""
    try:
        answer = client.put_item(TableName="T", Item={"order_id": {"S": "ö"}})
    except (BotoCoreError, ClientError) as error:
        return type(error).__name__
    return f"tries: {1 + answer['ResponseMetadata']['RetryAttempts']}"


# ---------------------------------------------------------------- what is sent


def test_what_is_sent_is_what_botocore_sends(answers: StripeAnswers) -> None:
    """The same body, and the same headers but for those of one try; signed with a role's token."""
    answers.post("/", json={})
    put(ours(answers.url))
    put(the_model(answers.url))
    mine, model = answers.calls
    of_one_try = {"authorization", "x-amz-date", "amz-sdk-invocation-id", "user-agent"}
    sent = [{n.lower(): v for n, v in call.headers.items() if n.lower() not in of_one_try} for call in (mine, model)]
    assert (mine.body, sent[0]) == (model.body, sent[1])
    assert sent[0]["x-amz-security-token"] == TOKEN
    assert mine.headers.keys() == model.headers.keys()
    assert "Signature=" in mine.headers["Authorization"]


@pytest.mark.parametrize("client", [ours, the_model])
def test_without_credentials_nothing_is_sent(
    answers: StripeAnswers, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that nobody signed would only be refused."""
    monkeypatch.setattr("botocore.session.Session.get_credentials", lambda *_, **__: None)
    assert put(client(answers.url)) == "NoCredentialsError"
    assert answers.calls == []


# ---------------------------------------------------------------- connections that fail


@pytest.mark.parametrize("client", [ours, the_model])
@pytest.mark.parametrize(
    ("broken", "result"),
    [
        (Break.BEFORE, "ConnectionClosedError"),
        (Break.RESET, "ConnectionClosedError"),
        (Break.SILENT, "ReadTimeoutError"),
        (Break.STALLED, "ReadTimeoutError"),
    ],
)
def test_a_request_is_tried_again_as_botocore_would(
    answers: StripeAnswers, client: Client, broken: Break, result: str
) -> None:
    """Once; then its caller learns how it failed, under botocore's name."""
    answers.post("/", json={"some": "thing"}, breaks=broken)
    assert put(client(answers.url, patience(broken))) == result
    assert len(answers.await_calls(2)) == 2


@pytest.mark.parametrize("client", [ours, the_model])
@pytest.mark.parametrize("broken", [Break.BEFORE, Break.RESET, Break.SILENT])
def test_the_second_try_is_answered(answers: StripeAnswers, client: Client, broken: Break) -> None:
    """Over another connection."""
    answers.post("/", json={}, breaks=broken)
    answers.post("/", json={})
    assert put(client(answers.url, patience(broken, IN_BETWEEN))) == "tries: 2"
    assert answers.connections == 2


def test_a_body_that_breaks_off_is_no_answer(answers: StripeAnswers) -> None:
    """It is tried again. (botocore's own way would try to read what there is of it.)"""
    answers.post("/", json={"some": "thing"}, breaks=Break.WITHIN)
    answers.post("/", json={})
    assert put(ours(answers.url)) == "tries: 2"


def test_an_informational_response_is_no_answer(answers: StripeAnswers) -> None:
    """The next request does not read the answer that is still to come: it may be another row's."""
    answers.post("/", json={"Attributes": {"order_id": {"S": "first"}}}, breaks=Break.INFORMED)
    answers.post("/", json={"Attributes": {"order_id": {"S": "first"}}})
    answers.post("/", json={"Attributes": {"order_id": {"S": "second"}}})
    client = ours(answers.url)
    rows = [client.update_item(TableName="T", Key={})["Attributes"]["order_id"]["S"] for _ in range(2)]
    assert rows == ["first", "second"]
    assert (len(answers.calls), answers.connections) == (3, 2)


@pytest.mark.parametrize("client", [ours, the_model])
@pytest.mark.parametrize("host", ["127.0.0.1", "dynamodb.invalid"])
def test_nobody_listens_or_has_that_name(client: Client, host: str) -> None:
    """Its caller learns that nothing was sent."""
    with socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    assert put(client(f"http://{host}:{port}")) == "EndpointConnectionError"


def test_a_server_that_says_nothing_while_it_is_connected_to() -> None:
    """The time to connect ends it, which is shorter than the time to answer."""
    with socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        with patch.dict("os.environ", AWS_ENDPOINT_URL_DYNAMODB=url):
            client = dynamodb_client(session(), config(10 * PATIENT, connect_seconds=IMPATIENT))
        assert put(client) == "ConnectTimeoutError"


@pytest.mark.parametrize("client", [ours, the_model])
def test_a_connection_that_was_closed_meanwhile_costs_no_try(answers: StripeAnswers, client: Client) -> None:
    """As of a function that was frozen: the next request opens another one, and is sent once."""
    answers.post("/", json={}, closes_after=True)
    reused = client(answers.url)
    first = put(reused)
    answers.await_closed(1)
    assert [first, put(reused)] == ["tries: 1", "tries: 1"]
    assert (len(answers.calls), answers.connections) == (2, 2)


def test_a_response_that_announces_its_end_leaves_no_connection(answers: StripeAnswers) -> None:
    """The next request does not try it."""
    answers.post("/", json={}, headers={"Connection": "close"}, closes_after=True)
    client = ours(answers.url)
    assert [put(client), put(client)] == ["tries: 1", "tries: 1"]


def test_each_thread_of_a_batch_has_a_connection_that_it_keeps(answers: StripeAnswers) -> None:
    """Batch after batch, with all records at once."""
    answers.post("/", json={})
    client, together = ours(answers.url), Barrier(BATCH_SIZE)

    def one(_: int) -> str:
        together.wait(60)
        return put(client)

    with ThreadPoolExecutor(BATCH_SIZE) as threads:
        assert list(threads.map(one, range(5 * BATCH_SIZE))) == ["tries: 1"] * 5 * BATCH_SIZE
    assert answers.connections <= BATCH_SIZE


# ---------------------------------------------------------------- what DynamoDB answers


def test_threads_that_are_refused_at_the_same_time_share_one_exception(
    answers: StripeAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore would make it at the first refusal, without a lock: it is there before."""
    client = ours(answers.url)
    made = "botocore.errorfactory.ClientExceptionsFactory.create_client_exceptions"
    monkeypatch.setattr(made, lambda *_: pytest.fail("made when it was asked for"))
    assert issubclass(client.exceptions.ConditionalCheckFailedException, ClientError)


@pytest.mark.parametrize("client", [ours, the_model])
def test_a_refusal_carries_the_row(answers: StripeAnswers, client: Client) -> None:
    """As the claim reads it."""
    refusal = {
        "__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",
        "Message": "The conditional request failed",
        "Item": {"attempt": {"N": "1"}},
    }
    answers.post("/", status=400, json=refusal)
    with pytest.raises(ClientError) as refused:
        client(answers.url).put_item(TableName="T", Item={})
    assert refused.value.response["Error"]["Code"] == "ConditionalCheckFailedException"
    assert refused.value.response["Item"] == {"attempt": {"N": "1"}}  # type: ignore[typeddict-item]  # with ALL_OLD
    assert len(answers.calls) == 1


@pytest.mark.parametrize("client", [ours, the_model])
def test_a_throttled_request_is_tried_again(answers: StripeAnswers, client: Client) -> None:
    """And an answer that does not have the checksum that it names."""
    answers.post("/", status=400, json={"__type": "x#ThrottlingException"})
    answers.post("/", json={})
    assert put(client(answers.url)) == "tries: 2"


@pytest.mark.parametrize("client", [ours, the_model])
def test_an_answer_without_its_checksum_is_asked_for_again(answers: StripeAnswers, client: Client) -> None:
    """It was changed on its way."""
    body = json.dumps({"Attributes": {}}).encode()
    answers.post("/", body=body, headers={"x-amz-crc32": "1"})
    answers.post("/", body=body, headers={"x-amz-crc32": str(crc32(body))})
    assert put(client(answers.url)) == "tries: 2"


# ---------------------------------------------------------------- certificates and proxies


@pytest.mark.parametrize("client", [ours, the_model])
@pytest.mark.parametrize(
    ("names", "is_trusted", "result"),
    [
        ([LOCALHOST], True, "tries: 1"),
        ([LOCALHOST], False, "SSLError"),
        ([x509.DNSName("other")], True, "SSLError"),
    ],
    ids=["trusted", "unknown", "of another host"],
)
def test_only_a_trusted_certificate_of_the_host_is_taken(
    tmp_path: Path,
    client: Client,
    names: list[x509.GeneralName],
    is_trusted: bool,
    result: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of botocore's bundle, or of the one that AWS_CA_BUNDLE names."""
    with https_server(tmp_path, *names, body=b"{}") as (url, bundle):
        if is_trusted:
            monkeypatch.setenv("AWS_CA_BUNDLE", bundle)
        assert put(client(url)) == result


def test_where_a_proxy_is_in_between_botocore_does_all(answers: StripeAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    """And signs the request."""
    monkeypatch.setenv("http_proxy", answers.url)
    answers.post("/", json={})
    assert put(ours("http://dynamodb.invalid")) == "tries: 1"
    [call] = answers.calls
    assert call.path_url == "http://dynamodb.invalid/"
    assert "Signature=" in call.headers["Authorization"]
