"""What ends a command in one clear line: wrong arguments, no such stack, no credentials, a missing permission."""

from enum import IntEnum

import stripe
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

from onecharge.payments.stripe_errors import classify
from onecharge.runtime.checkpoints import ConcurrentRun

NO_SUCH_ORDER = "this stack has no such order: check the id, --stack, AWS_PROFILE and AWS_REGION"


class ExitStatus(IntEnum):
    """What a script learns from a command; command_line.py says when."""

    OK = 0
    FOUND = 1
    USAGE = 2


class Problem(Exception):
    """Ends the command with this line."""

    def __init__(self, line: str, status: ExitStatus = ExitStatus.USAGE) -> None:
        super().__init__(" ".join(line.split()))
        self.status = status


def problem_of(error: Exception) -> Problem | None:
    """The error as one line that says what to do; None if it is a defect of ours."""
    match error:
        case Problem():
            return error
        case NoCredentialsError() | NoRegionError():
            return Problem(f"{error} (AWS_PROFILE, AWS_REGION)")
        case ClientError() if "does not exist" in str(error):
            return Problem(f"{error} in this account and region (--stack, AWS_PROFILE, AWS_REGION)")
        case BotoCoreError() | ClientError():
            return Problem(str(error))  # It names the endpoint that does not answer, or the action that is not allowed.
        case ConcurrentRun():
            return Problem("somebody else, or reconcile, has written the same checkpoint: run it again in some minutes")
        case stripe.APIConnectionError():
            return Problem("Stripe does not answer: is the network there, and the parameter StripeApiBase right?")
        case stripe.AuthenticationError() | stripe.PermissionError():
            return Problem(f"Stripe refuses the API key, or it lacks a permission (STRIPE_SECRET_KEY): {error}")
        case stripe.StripeError():
            return Problem(f"Stripe answers {error.http_status or 'nothing'} ({classify(error).kind.name}): {error}")
    return None
