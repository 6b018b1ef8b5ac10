"""A Lambda function's handler around its application.

A function's app.py defines `Application`, the only place where its parts are put together, and its handler:

    class Application:
        def __init__(self, environment: Mapping[str, str]) -> None:
            self.counts = Counts()
            ...

    @lambda_handler(Application)
    def handler(application: Application, event: dict[str, Any], context: "LambdaContext") -> None:
        application.republish(context)
"""

import os
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, Protocol

from onecharge.runtime.logs import set_level
from onecharge.runtime.metrics import Counts
from onecharge.runtime.redaction import presentable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

type Handler[Result] = Callable[[dict[str, Any], "LambdaContext"], Result]
"""What Lambda invokes, with the event and the context."""


class ApplicationParts(Protocol):
    """An application: everything that lives as long as the execution environment, its metrics included."""

    counts: Counts


def lambda_handler[App: ApplicationParts, Result](
    build: Callable[[Mapping[str, str]], App],
) -> Callable[[Callable[[App, dict[str, Any], "LambdaContext"], Result]], Handler[Result]]:
    """Turn a function whose first argument is its application into a handler that Lambda can invoke.

    The application is built at the first invocation and reused by the later ones: importing the module reads no
    environment variable. The metrics are flushed after each invocation, whether or not it raises. Lambda logs an
    error that it raises, so a message that holds a secret is redacted (onecharge.runtime.redaction).

    Args:
        build: makes the application from the environment variables; usually the class itself.
    """

    @cache
    def application() -> App:
        built = build(os.environ)
        set_level(os.environ)
        return built

    def decorate(invoke: Callable[[App, dict[str, Any], "LambdaContext"], Result]) -> Handler[Result]:
        @wraps(invoke)
        def handler(event: dict[str, Any], context: "LambdaContext") -> Result:
            reused = application()
            try:
                return invoke(reused, event, context)
            except Exception as error:
                if (shown := presentable(error)) is error:
                    raise
                raise shown from None
            finally:
                reused.counts.flush()

        return handler

    return decorate
