"""The logger of a function: Powertools' JSON lines, without secrets. Libraries log only warnings, at any level."""

import logging
from collections.abc import Mapping
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


def function_logger(environment: Mapping[str, str]) -> Logger:
    """The logger of the function POWERTOOLS_SERVICE_NAME, with the level of POWERTOOLS_LOG_LEVEL.

    Powertools prefers Lambda's level (LoggingConfig, `AWS_LAMBDA_LOG_LEVEL`), which is never above INFO here: Lambda
    would drop the lines that hold the metrics. The libraries stay at WARNING, at DEBUG too: Lambda sets the level of
    the root logger, from which they would inherit it.
    """
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    logger = Logger(logger_formatter=RedactingFormatter())
    if service := environment.get("POWERTOOLS_SERVICE_NAME"):
        logging.getLogger(service).setLevel(environment.get("POWERTOOLS_LOG_LEVEL", "INFO"))
    return logger
