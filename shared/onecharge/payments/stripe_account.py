"""The Stripe client with the account's key as it is now, for functions that outlive a rotation of it."""

from collections.abc import Mapping
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING

import boto3
import stripe
from aws_lambda_powertools.utilities.parameters import SecretsProvider

from onecharge.payments.charges.gateway import StripeGateway, stripe_client
from onecharge.payments.time_bounds import TimeBounds

if TYPE_CHECKING:
    from botocore.config import Config

API_KEY_MAX_AGE_SECONDS = 300
"""How long a rotated Stripe key may go unnoticed; meanwhile charges are retried, and none is failed."""


class StripeAccount:
    """Reads the secret no more often than it has to; a key that cannot be read is an outage, and raises."""

    def __init__(self, environment: Mapping[str, str], *, config: "Config", bounds: TimeBounds) -> None:
        self._secrets = SecretsProvider(boto3_client=boto3.client("secretsmanager", config=config))
        self._secret_arn = environment["STRIPE_SECRET_ARN"]
        self._lock = Lock()
        self._client = lru_cache(maxsize=1)(
            partial(stripe_client, api_base=environment["STRIPE_API_BASE"], bounds=bounds)
        )

    def gateway(self) -> StripeGateway:
        """The gateway of the present key; the client behind it lasts as long as the key does."""
        with self._lock:  # Ten records of a cold start read the secret once.
            api_key = self._secrets.get(self._secret_arn, max_age=API_KEY_MAX_AGE_SECONDS)
            client: stripe.StripeClient = self._client(str(api_key).strip())
            return StripeGateway(client)
