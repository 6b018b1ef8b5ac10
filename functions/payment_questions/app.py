"""payment_questions: invoked by the order service, which waits for the answer. This file puts the parts together."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError

from onecharge.contract.questions import QUESTION
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.instruments import Instruments
from onecharge.payments.service import Charges, PaymentService
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.metrics import Counts
from payment_questions.answer import AnswerQuestion

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

STRIPE_SECONDS = 12
"""How much of the function's 20 s Stripe may take, since a customer waits: if Stripe does not respond at all, CANCELING
is answered within 5 s."""


def bounds_of(function_timeout_seconds: int) -> TimeBounds:
    """Short timeouts for Stripe; but a lease that outlives the function, as every lease does."""
    return replace(TimeBounds.of(STRIPE_SECONDS), lease_seconds=TimeBounds.of(function_timeout_seconds).lease_seconds)


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._logger = Logger()
        self.counts = Counts(Metrics())
        self._service = PaymentService(
            environment,
            bounds=bounds_of(int(environment["FUNCTION_TIMEOUT_SECONDS"])),
            instruments=Instruments(time.time, self._logger, self.counts),
        )

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer, as JSON. It is never logged: it may be a client secret."""
        return self._answer_question()(QUESTION.validate_python(question)).model_dump(mode="json")

    def _answer_question(self) -> AnswerQuestion:
        charges = self._charges()
        service = self._service
        cancel = (
            charges.cancel
            if charges
            else CancelPayment(service.store, worker=None, bounds=service.bounds, instruments=service.instruments)
        )
        return AnswerQuestion(
            store=service.store,
            cancel=cancel,
            gateway=charges.gateway if charges else None,
            instruments=service.instruments,
        )

    def _charges(self) -> Charges | None:
        """None if the Stripe key cannot be read: a cancellation is stored all the same."""
        deadline = self._service.bounds.deadline(time.time())
        try:
            charges = self._service.charges()
        except GetParameterError:
            self.counts("Alarm")
            self._logger.exception("the Stripe key cannot be read")
            return None
        return replace(charges, gateway=replace(charges.gateway, has_time=lambda: time.time() < deadline))


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one question of onecharge.contract.questions; an error means that the answer is unknown: ask again."""
    return application.answer(event)
