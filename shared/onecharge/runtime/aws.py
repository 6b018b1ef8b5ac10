"""AWS's clients: bounded time and retries, a connection for each parallel record; and their errors."""

from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

import botocore.session
from botocore import __version__ as botocore_version
from botocore.config import Config
from botocore.exceptions import ClientError

from onecharge.runtime.dynamodb_transport import DynamoDBTransport

BATCH_SIZE = 10
"""Records of one batch, processed in parallel; BatchSize of the queues' event source mappings in template.yaml."""

USER_AGENT = f"Botocore/{botocore_version} onecharge"
"""What AWS's logs show: the versions that AWS's support asks for first."""


if TYPE_CHECKING:
    import boto3

    aws_client = boto3.client  # Typed for each service.
else:

    def aws_client(service: str, *, config: Config) -> Any:
        """A client of this service: the same that `boto3.client` returns, without boto3's resources and transfers."""
        if service == "dynamodb":
            return dynamodb_client(_session(), config)
        return _session().create_client(service, config=config)

    @cache
    def _session() -> botocore.session.Session:
        """One for all clients, since each session reads the definitions of AWS's endpoints again."""
        return botocore.session.get_session()


def dynamodb_client(session: botocore.session.Session, config: Config) -> Any:
    """A client whose requests are sent by DynamoDBTransport; botocore's own way where a proxy is between."""
    client = session.create_client("dynamodb", config=config)
    # botocore makes the exceptions at the first error, without a lock: of two threads that meet one at the same time,
    # one would not catch it, since `client.exceptions` has other classes by then. So they are made before.
    _ = client.exceptions
    if not getproxies().keys() & {"http", "https"}:
        given: Any = client.meta.config
        transport: Any = DynamoDBTransport(
            connect_seconds=given.connect_timeout,
            read_seconds=given.read_timeout,
            ca_bundle=session.get_config_variable("ca_bundle"),
        )
        client.meta.events.register("before-send.dynamodb", transport)
    return client


def client_config() -> Config:
    """At most two tries of 3 s each. What takes longer fails, and the message waits in its queue, at no cost.

    What botocore would do anew for each request is left out: a fifth of a request's CPU.
    """
    return Config(
        connect_timeout=1,
        read_timeout=2,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=BATCH_SIZE,
        # The types say it before, and the service mostly after, as a ClientError. Not always: a parameter of another
        # structure fails as an AttributeError or TypeError, and SNS sends None as a text.
        parameter_validation=False,
        # Given, it is not put together twice for each request, of what never changes.
        user_agent=USER_AGENT,
    )


def impatient_config() -> Config:
    """For what only saves work: one try, and short timeouts. They bound no name's resolution: wait no longer either."""
    return client_config().merge(Config(connect_timeout=0.3, read_timeout=0.5, retries={"total_max_attempts": 1}))


def error_code(error: Exception) -> str:
    """What kind of error it is: the code that AWS has answered with, or the type of any other. Never its text."""
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
