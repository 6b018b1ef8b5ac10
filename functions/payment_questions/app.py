"""payment_questions: invoked by the order service, which waits for the answer. This file puts the parts together."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

from onecharge.contract.questions import QUESTION
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.charges.store import PaymentStore
from onecharge.payments.charges.worker import PaymentWorker
from onecharge.payments.stripe_account import StripeAccount
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import client_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts
from payment_questions.answer import AnswerQuestion

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

STRIPE_SECONDS = 12
"""What Stripe may take of the function's 20 s, since a customer waits: if Stripe does not answer a request at all,
CANCELING is answered within 5 s."""


def bounds_of(function_timeout_seconds: int) -> TimeBounds:
    """Short waits for Stripe; but a lease that outlives the function, as every lease does."""
    return replace(TimeBounds.of(STRIPE_SECONDS), lease_seconds=TimeBounds.of(function_timeout_seconds).lease_seconds)


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        config = client_config()
        self._logger = Logger()
        self.counts = Counts(Metrics())
        self._bounds = bounds_of(int(environment["FUNCTION_TIMEOUT_SECONDS"]))
        self._store = PaymentStore(boto3.client("dynamodb", config=config), environment["PAYMENTS_TABLE"])
        self._stripe = StripeAccount(environment, config=config, bounds=self._bounds)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer, as JSON. It is never logged: it may be a client secret."""
        return self._answer_question()(QUESTION.validate_python(question)).model_dump(mode="json")

    def _answer_question(self) -> AnswerQuestion:
        gateway = self._gateway()
        worker = None
        if gateway:
            worker = PaymentWorker(
                store=self._store, gateway=gateway, clock=time.time, logger=self._logger, count=self.counts
            )
        cancel = CancelPayment(
            store=self._store,
            worker=worker,
            bounds=self._bounds,
            clock=time.time,
            logger=self._logger,
            count=self.counts,
        )
        return AnswerQuestion(store=self._store, cancel=cancel, gateway=gateway, logger=self._logger, count=self.counts)

    def _gateway(self) -> StripeGateway | None:
        """With the Stripe key as it is now. One that cannot be read must not keep a cancellation from being stored."""
        deadline = self._bounds.deadline(time.time())
        try:
            return replace(self._stripe.gateway(), has_time=lambda: time.time() < deadline)
        except GetParameterError:
            self.counts("Alarm")
            self._logger.exception("the Stripe key cannot be read")
            return None


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one question of onecharge.contract.questions; an error means that the answer is unknown: ask again."""
    return application.answer(event)
