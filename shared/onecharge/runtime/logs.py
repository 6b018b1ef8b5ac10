"""The logger of a function: Powertools' JSON lines, without secrets. Libraries log only warnings, at any level."""

import logging
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from onecharge.runtime.redaction import redacted

LIBRARIES = ("boto3", "botocore", "s3transfer", "stripe", "urllib3")
"""At DEBUG they log whole requests and responses: the Stripe key that Secrets Manager returns, a client secret.
At INFO Stripe's SDK logs two lines for each request; one line of ours for each delivery says more."""


class RedactingFormatter(LambdaPowertoolsFormatter):
    """Powertools' line, redacted as a whole: message, fields, and the text of an exception."""

    def serialize(self, log: Any) -> str:
        return redacted(super().serialize(log))


def function_logger() -> Logger:
    """The logger of the function POWERTOOLS_SERVICE_NAME, with Lambda's level (LoggingConfig). The libraries stay at
    WARNING: Lambda sets the level of the root logger, from which they would inherit it."""
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    return Logger(logger_formatter=RedactingFormatter(location=None))
