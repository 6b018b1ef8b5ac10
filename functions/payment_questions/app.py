"""payment_questions: invoked by the order service, which waits for the answer. This file puts the parts together."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Metrics
from pydantic import ValidationError

from onecharge.contract.events import Contract, reason_of
from onecharge.contract.questions import (
    QUESTION,
    CancelQuestion,
    ClientSecretQuestion,
)
from onecharge.payments.charges.cancel import CancelPayment
from onecharge.payments.instruments import Instruments
from onecharge.payments.service import Charges, PaymentService
from onecharge.payments.stripe_limit import SharedRate
from onecharge.payments.time_bounds import TimeBounds
from onecharge.runtime.aws import aws_client, impatient_config
from onecharge.runtime.functions import lambda_handler
from onecharge.runtime.logs import function_logger
from onecharge.runtime.metrics import Counts
from onecharge.runtime.secrets import SecretUnavailable
from payment_questions.cancel import AnswerCancel
from payment_questions.client_secret import AnswerClientSecret

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

STRIPE_SECONDS = 12
"""How much of the function's 20 s Stripe may take, since a customer waits: if Stripe does not respond at all, CANCELING
is answered within 5 s."""

SECRET_SLOT_SECONDS = 1.0


def bounds_of(function_timeout_seconds: int) -> TimeBounds:
    """Short timeouts for Stripe; but a lease that outlives the function, as every lease does."""
    return replace(TimeBounds.of(STRIPE_SECONDS), lease_seconds=TimeBounds.of(function_timeout_seconds).lease_seconds)


class InvalidQuestion(Exception):
    """The question breaks the contract; names the field and the rule."""


class Application:
    """Everything that outlives an invocation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._logger = function_logger()
        self.counts = Counts(Metrics())
        self._service = PaymentService(
            environment,
            bounds=bounds_of(int(environment["FUNCTION_TIMEOUT_SECONDS"])),
            instruments=Instruments(time.time, self._logger, self.counts),
        )
        self._secrets_rate = SharedRate.of(
            environment,
            "payment_questions",
            requests=1,
            client=aws_client("dynamodb", config=impatient_config()),
            instruments=self._service.instruments,
        )

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer, as JSON. It is never logged: it may be a client secret. Raises InvalidQuestion."""
        try:
            parsed = QUESTION.validate_python(question)
        except ValidationError as invalid:
            # pydantic's own message repeats the input, and Lambda logs the message of an error that a handler raises.
            raise InvalidQuestion(reason_of(invalid)) from None
        return self._answers()[type(parsed)](parsed).model_dump(mode="json")

    def _answers(self) -> Mapping[type[Contract], Callable[[Any], Contract]]:
        """With the Stripe key as it is now. If it cannot be read, a cancellation is stored all the same."""
        charges, service = self._charges(), self._service
        without_stripe = CancelPayment(service.store, None, service.bounds, service.instruments)
        gateway = charges.gateway if charges else None
        return {
            CancelQuestion: AnswerCancel(charges.cancel if charges else without_stripe),
            ClientSecretQuestion: AnswerClientSecret(
                service.store, gateway, service.instruments, self._may_ask_for_a_secret
            ),
        }

    def _may_ask_for_a_secret(self) -> bool:
        """Whoever asks again and again leaves Stripe's limit to charges. A customer waits a second for it at most."""
        for slot in self._secrets_rate.take(1, until=time.time() + SECRET_SLOT_SECONDS):
            time.sleep(max(0.0, min(slot.begin_at - time.time(), SECRET_SLOT_SECONDS)))
            return True
        return False

    def _charges(self) -> Charges | None:
        """None if the Stripe key cannot be read."""
        deadline = self._service.bounds.deadline(time.time())
        try:
            charges = self._service.charges()
        except SecretUnavailable:
            self._logger.exception("the Stripe key cannot be read")
            return None
        return replace(charges, gateway=replace(charges.gateway, has_time=lambda: time.time() < deadline))


@lambda_handler(Application)
def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> dict[str, Any]:
    """Answer one question of onecharge.contract.questions; an error means that the answer is unknown: ask again."""
    return application.answer(event)
