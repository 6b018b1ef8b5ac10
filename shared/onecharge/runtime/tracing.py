"""One trace for each order, from the HTTP request to Stripe: whichever function works on it, however late.

An order's id holds 128 bits in hexadecimal, as does the id of an OpenTelemetry trace: the order's trace has the same.
Nothing about traces is stored or sent along, so a redelivery, a scheduled run and an event of Stripe's days later come
into the same trace. X-Ray's own propagation does not reach so far: it ends at a DynamoDB stream, and for a batch from
SQS it begins a new trace, with links to the others.

    with order_span("onecharge.order.placed", order_id):
        ...     # what OpenTelemetry records meanwhile, such as a request to Stripe, is part of the order's trace

Spans are recorded where OpenTelemetry runs: the parameter TracingLayerArn adds AWS's layer, which loads it before the
handler. Without the layer nothing is imported and nothing recorded.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from onecharge.contract.events import ORDER_ID_PATTERN

_SCOPE = "onecharge"
_API = "opentelemetry.trace"
INSTRUMENTATION = "opentelemetry.instrumentation.aws_lambda"
"""What the layer wraps a handler with."""


@contextmanager
def order_span(name: str, order_id: str | None) -> Iterator[None]:
    """Record what the block does as a span of the order's trace; it is the parent of all spans within.

    An error only marks the span as failed: its message could hold what belongs in no trace.

    Args:
        name: what is done, as the type of an event: a word of ours, never a customer's.
        order_id: whose trace; nothing is recorded if it is no order's id.
    """
    api = sys.modules.get(_API)
    if api is None or (context := _trace_of(order_id, api)) is None:
        yield
        return
    tracer = api.get_tracer(_SCOPE)
    attributes = {"onecharge.order_id": order_id}
    with tracer.start_as_current_span(
        name, context, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except BaseException:
            span.set_status(api.Status(api.StatusCode.ERROR))
            raise


@contextmanager
def order_spans(name: str, order_ids: Iterable[str]) -> Iterator[None]:
    """Record the block as a span in the trace of each of these orders: one request that is about all of them.

    What OpenTelemetry records within belongs to the invocation's own trace, since no order can claim it.
    """
    api = sys.modules.get(_API)
    if api is None:
        yield
        return
    tracer = api.get_tracer(_SCOPE)
    with ExitStack() as spans:
        for order_id in order_ids:
            if (context := _trace_of(order_id, api)) is not None:
                span = tracer.start_span(name, context, attributes={"onecharge.order_id": order_id})
                spans.callback(span.end)
        yield


def forget_request(event: dict[str, Any]) -> None:
    """Take out of an HTTP request's event, once it is handled, what its sender chose and the layer would record.

    OpenTelemetry's instrumentation of Lambda reads the event after the handler: path, query and user agent become
    attributes of the invocation's span. The route, which is ours, stays.
    """
    http = event.get("requestContext", {}).get("http") if INSTRUMENTATION in sys.modules else None
    if not http:
        return
    route = event.get("routeKey", "")
    event |= {"rawPath": route, "rawQueryString": ""}
    event.pop("queryStringParameters", None)
    event["requestContext"] |= {"http": {"method": http["method"], "path": route}}


def _trace_of(order_id: str | None, api: Any) -> Any:
    """The context of the order's trace; None if this is no order's id.

    The parent that it names is never recorded: every span of ours is at the top of the order's trace.
    """
    if order_id is None or not re.fullmatch(ORDER_ID_PATTERN, order_id):
        return None
    trace_id = int(order_id.removeprefix("ord_"), 16)
    parent = api.SpanContext(
        trace_id=trace_id,
        span_id=trace_id & 0xFFFF_FFFF_FFFF_FFFF,
        is_remote=True,
        trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED),
    )
    return api.set_span_in_context(api.NonRecordingSpan(parent)) if parent.is_valid else None
