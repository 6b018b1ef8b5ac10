"""What ends a command in one clear line: wrong arguments, no such stack, no credentials, a missing permission."""

import re
from enum import IntEnum

import stripe
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
)

from onecharge.payments.stripe_responses import classify
from onecharge.runtime.dynamodb import ReadsThrottled


class ExitStatus(IntEnum):
    """What a script learns from a command."""

    OK = 0
    """Nothing is wrong, or the change is done."""
    FOUND = 1
    """Something is wrong, or the change is not done: a dry run, or a refusal."""
    USAGE = 2
    """The command could not run: arguments, credentials, permissions, an unreachable service."""


class Problem(Exception):
    """Ends the command with this line."""

    def __init__(self, line: str, status: ExitStatus = ExitStatus.USAGE) -> None:
        super().__init__(line)
        self.status = status


_CREDENTIALS = frozenset(
    (
        "ExpiredToken ExpiredTokenException InvalidClientTokenId UnrecognizedClientException InvalidAccessKeyId "
        "SignatureDoesNotMatch InvalidSignatureException RequestExpired AuthFailure MissingAuthenticationToken"
    ).split()
)
_DENIED = frozenset(
    "AccessDenied AccessDeniedException AccessDeniedFault UnauthorizedOperation AuthorizationError".split()
)
"""Each service spells it in its own way (AWS documentation, "Common errors" of each API)."""


def problem_of(error: Exception) -> Problem | None:
    """The error as one line that says what to do; None if it is a defect of ours."""
    match error:
        case Problem():
            return error
        case NoCredentialsError() | PartialCredentialsError() | TokenRetrievalError():
            return Problem("no AWS credentials: set AWS_PROFILE, or `aws sso login`, or name one with --profile")
        case ProfileNotFound():
            return Problem(f"{error}: `aws configure list-profiles` lists them")
        case NoRegionError():
            return Problem("no AWS region: set AWS_REGION, or name one with --region")
        case EndpointConnectionError():
            url = error.kwargs.get("endpoint_url")
            return Problem(f"nothing answers at {url}: is the region right (--region), is the local stack running?")
        case ClientError():
            return _of_client_error(error)
        case BotoCoreError():
            return Problem(f"AWS does not answer: {_one_line(error)}")
        case ReadsThrottled():
            return Problem("DynamoDB throttles our reads: run it again later")
        case stripe.StripeError():
            return Problem(stripe_line(error))
    return None


def stripe_line(error: stripe.StripeError) -> str:
    """Why Stripe did not answer as it should, without the key that the error may quote."""
    if isinstance(error, stripe.APIConnectionError):
        return "Stripe does not answer: is the network there, and the stack's parameter StripeApiBase right?"
    if isinstance(error, stripe.AuthenticationError):
        return "Stripe refuses the API key (401): it was rolled or is another account's; --stripe-key-secret names one"
    if isinstance(error, stripe.PermissionError):
        return f"the Stripe key lacks a permission (403): {_one_line(error)}"
    return f"Stripe answers {error.http_status or 'nothing'} ({classify(error).kind.name}): {_one_line(error)}"


def _of_client_error(error: ClientError) -> Problem:
    code = error.response.get("Error", {}).get("Code", "")
    message = _one_line(error.response.get("Error", {}).get("Message", ""))
    if code in _CREDENTIALS:
        return Problem(f"AWS refuses the credentials ({code}): are they expired, or of another account?")
    if code in _DENIED:
        # AWS names the IAM action in its message, or does not: then it is the operation.
        named = re.search(r"not authorized to perform: ([\w-]+:\w+)( on resource: \S+)?", message)
        action = f"{named[1]}{named[2] or ''}".replace(" resource:", "") if named else error.operation_name
        return Problem(f"not allowed: {action}; ask for it, or use another role")
    if code == "ValidationError" and "does not exist" in message:
        return Problem(f"{message} in this account and region: --stack names it, --region and --profile where it is")
    return Problem(f"{error.operation_name} failed: {code}: {message}")


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
