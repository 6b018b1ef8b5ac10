"""What ends a command in one clear line: wrong arguments, no such stack, no credentials, a missing permission."""

from enum import IntEnum

import stripe
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from onecharge.payments.stripe_responses import LookupInconclusive, classify
from onecharge.runtime.checkpoints import ConcurrentRun
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


def problem_of(error: Exception) -> Problem | None:
    """The error as one line that says what to do; None if it is a defect of ours."""
    match error:
        case Problem():
            return error
        case NoCredentialsError() | NoRegionError():
            return Problem(f"{error} (AWS_PROFILE, AWS_REGION; --profile, --region)")
        case ClientError() if "does not exist" in str(error):
            return Problem(f"{_one_line(error)} in this account and region (--stack, --profile, --region)")
        case BotoCoreError() | ClientError():
            # It names the endpoint that does not answer, or the action that is not allowed.
            return Problem(_one_line(error))
        case ConcurrentRun():
            return Problem("somebody else, or reconcile, has written the same checkpoint: run it again in some minutes")
        case ReadsThrottled():
            return Problem("DynamoDB throttles our reads: run it again later")
        case stripe.StripeError():
            return Problem(stripe_line(error))
        case LookupInconclusive():
            return Problem("Stripe has more to show than was read: run this again later", ExitStatus.FOUND)
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


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
