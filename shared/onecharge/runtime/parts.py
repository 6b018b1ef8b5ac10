"""What a function is made of, and its handler. A part is made at its first use: a cold start makes what it needs.

A part is the only place that reads the environment variables that it is made of. Each function's app.py shows the use.
"""

import os
from collections.abc import Callable, Mapping
from functools import cache, cached_property, wraps
from threading import RLock
from typing import TYPE_CHECKING, Any

import botocore.session

from onecharge.runtime.aws import client_config
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.redaction import presentable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_secretsmanager import SecretsManagerClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient


type Context = LambdaContext
"""What Lambda says of the invocation."""
type Handler[Result] = Callable[[dict[str, Any], Context], Result]
"""What Lambda invokes, with the event and the context."""


class part[Made](cached_property[Made]):
    """A cached_property with a lock: two records of a batch have one rate limit, and one copy of a secret.

    Python calls `__get__` only until the part is made: after that it costs no lock. If making it raises, the next use
    makes it again.
    """

    def __get__(self, parts: "Parts", owner: type | None = None) -> Made:  # type: ignore[override]
        with parts.lock:
            return super().__get__(parts, owner)


class Parts:
    """The parts of any function. A subclass adds those of a service, or of one function."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.lock = RLock()  # Making a part makes the parts that it is made of.
        # Immediately: until there is a logger, libraries would log requests with secrets.
        self.logger = function_logger()
        self.counts = Counts()

    @part
    def aws(self) -> botocore.session.Session:
        """boto3's clients are botocore's; what boto3 adds to them is not used, and would be imported for nothing."""
        return botocore.session.get_session()

    def client(self, service: str) -> Any:
        """Make a client of this service. Threads may share it, but not make clients at the same time."""
        return self.aws.create_client(service, config=client_config())

    @part
    def dynamodb(self) -> "DynamoDBClient":
        """With its exceptions, which botocore makes at their first use, without a lock.

        Of two threads that are refused at the same time, one would not catch its exception, since `client.exceptions`
        has other classes by then.
        """
        client: DynamoDBClient = self.client("dynamodb")
        _ = client.exceptions
        return client

    sqs: part["SQSClient"] = part(lambda parts: parts.client("sqs"))
    sns: part["SNSClient"] = part(lambda parts: parts.client("sns"))
    secretsmanager: part["SecretsManagerClient"] = part(lambda parts: parts.client("secretsmanager"))


def lambda_handler[P: Parts, Result](
    parts_of: Callable[[Mapping[str, str]], P],
) -> Callable[[Callable[[P, dict[str, Any], Context], Result]], Handler[Result]]:
    """Turn a function whose first argument is its parts into a handler that Lambda can invoke.

    All invocations of a process share the parts, which have the environment of the first one: importing the module
    reads no environment variable. The metrics are flushed after each invocation, whether or not it raises. Lambda logs
    an error that it raises, so a message that holds a secret is redacted (onecharge.runtime.redaction).
    """

    @cache
    def process_parts() -> P:
        return parts_of(dict(os.environ))

    def decorate(invoke: Callable[[P, dict[str, Any], Context], Result]) -> Handler[Result]:
        @wraps(invoke)
        def handler(event: dict[str, Any], context: Context) -> Result:
            parts = process_parts()
            try:
                return invoke(parts, event, context)
            except Exception as error:
                if (shown := presentable(error)) is error:
                    raise
                raise shown from None
            finally:
                parts.counts.flush()

        return handler

    return decorate
