"""A Lambda function's handler around its parts.

A function's app.py names its parts (onecharge.runtime.parts), and has its handler:

    @lambda_handler(RepublishParts)
    def handler(parts: RepublishParts, event: dict[str, Any], context: Context) -> None:
        parts.republisher.run(…)
"""

import os
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from onecharge.runtime.parts import Parts
from onecharge.runtime.redaction import presentable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

type Context = LambdaContext
"""What Lambda says of the invocation."""
type Handler[Result] = Callable[[dict[str, Any], Context], Result]
"""What Lambda invokes, with the event and the context."""


def lambda_handler[P: Parts, Result](
    parts_of: Callable[[Mapping[str, str]], P],
) -> Callable[[Callable[[P, dict[str, Any], Context], Result]], Handler[Result]]:
    """Turn a function whose first argument is its parts into a handler that Lambda can invoke.

    All invocations of a process share the parts, which have the environment of the first one: importing the module
    reads no environment variable. The metrics are flushed after each invocation, whether or not it raises. Lambda logs
    an error that it raises, so a message that holds a secret is redacted (onecharge.runtime.redaction).

    Args:
        parts_of: the function's subclass of Parts.
    """

    @cache
    def process_parts() -> P:
        return parts_of(dict(os.environ))

    def decorate(invoke: Callable[[P, dict[str, Any], Context], Result]) -> Handler[Result]:
        @wraps(invoke)
        def handler(event: dict[str, Any], context: Context) -> Result:
            parts = process_parts()
            try:
                return invoke(parts, event, context)
            except Exception as error:
                if (shown := presentable(error)) is error:
                    raise
                raise shown from None
            finally:
                parts.counts.flush()

        return handler

    return decorate
