"""The client for Stripe's API, with the account's key as it is now: an Application outlives a rotation of the key."""

import logging
from collections.abc import Mapping
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING

import boto3
import requests
import stripe
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from requests.adapters import HTTPAdapter

from onecharge.payments.time_bounds import STRIPE_RETRIES, TimeBounds
from onecharge.runtime.aws import BATCH_SIZE

if TYPE_CHECKING:
    from botocore.config import Config

STRIPE_VERSION = "2026-10-28.endive"
"""Stated explicitly, so that an upgrade of the SDK is no silent upgrade of the API."""

API_KEY_MAX_AGE_SECONDS = 300
"""How long a rotated key is still used; meanwhile charges are retried, and none is failed."""


def stripe_client(api_key: str, *, api_base: str, bounds: TimeBounds) -> stripe.StripeClient:
    """One client for all threads: one connection pool, bounded timeouts, and no usage telemetry."""
    stripe.enable_telemetry = False  # It writes a file in the home directory.
    # The SDK logs two lines for each request at INFO; one line of ours for each delivery says more.
    logging.getLogger("stripe").setLevel(logging.WARNING)
    session = requests.Session()
    session.mount("https://", HTTPAdapter(pool_connections=1, pool_maxsize=BATCH_SIZE))
    session.mount("http://", HTTPAdapter(pool_connections=1, pool_maxsize=BATCH_SIZE))
    return stripe.StripeClient(
        api_key,
        stripe_version=STRIPE_VERSION,
        base_addresses={"api": api_base},
        max_network_retries=STRIPE_RETRIES,
        http_client=stripe.RequestsClient(
            timeout=(bounds.stripe_connect_timeout_seconds, bounds.stripe_read_timeout_seconds),
            session=session,
        ),
    )


class StripeAccount:
    """The account whose key a secret holds. The secret is read at most every API_KEY_MAX_AGE_SECONDS."""

    def __init__(self, environment: Mapping[str, str], *, config: "Config", bounds: TimeBounds) -> None:
        self._secrets = SecretsProvider(boto3_client=boto3.client("secretsmanager", config=config))
        self._secret_arn = environment["STRIPE_SECRET_ARN"]
        self._lock = Lock()
        self._client_for = lru_cache(maxsize=1)(
            partial(stripe_client, api_base=environment["STRIPE_API_BASE"], bounds=bounds)
        )

    def client(self) -> stripe.StripeClient:
        """The client with the current key; the same one as long as the key does not change.

        Raises:
            GetParameterError: the key cannot be read: an outage.
        """
        with self._lock:  # Ten records of a cold start read the secret once.
            api_key = self._secrets.get(self._secret_arn, max_age=API_KEY_MAX_AGE_SECONDS)
            return self._client_for(str(api_key).strip())
