"""What ends a command in one clear line: wrong arguments, no such stack, no credentials, a missing permission."""

from enum import IntEnum

import stripe
from botocore.exceptions import BotoCoreError, ClientError

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
        case BotoCoreError() | ClientError():
            # It names the endpoint that does not answer, what does not exist, or the action that is not allowed.
            return Problem(f"{error} (check --stack, AWS_PROFILE and AWS_REGION)")
        case ConcurrentRun():
            return Problem("somebody else, or reconcile, has written the same checkpoint: run it again in some minutes")
        case stripe.StripeError():
            return Problem(f"Stripe: {classify(error).kind}: {error} (check STRIPE_SECRET_KEY and StripeApiBase)")
    return None
