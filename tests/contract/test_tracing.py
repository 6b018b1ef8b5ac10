"""Traces: one for each order, from the HTTP request to Stripe, as OpenTelemetry's own SDK records them."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.urllib3 import URLLib3Instrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from charge_order.app import ORDER_EVENT, handle
from local.stripe_standin.server import running_standin
from onecharge.orders.schema import StoredOrder
from onecharge.payments.charges.gateway import StripeGateway
from onecharge.payments.stripe_client import stripe_client
from onecharge.runtime.consumer import Consumer, one_by_one
from onecharge.runtime.queues import Delivery
from onecharge.runtime.topics import Topic
from onecharge.runtime.tracing import order_span, order_spans
from testing.builders import BOUNDS, ORDER_ID
from testing.charge_harness import ChargeHarness
from testing.harness import PROJECT, LambdaContext, Log, Sample
from testing.orders_api import NOW, Client, order
from testing.silent import SILENT

OTHER_ORDER_ID = "ord_" + "b" * 32


class Sns:
    """Accepts every batch; has the messages."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def publish_batch(self, **request: Any) -> dict[str, Any]:
        entries = request["PublishBatchRequestEntries"]
        self.messages += [entry["Message"] for entry in entries]
        return {"Successful": [{"Id": entry["Id"]} for entry in entries], "Failed": []}


@pytest.fixture(scope="module")
def recorder() -> Iterator[InMemorySpanExporter]:
    """What AWS's layer does before it imports the handler: it sets a provider, and instruments urllib3."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    URLLib3Instrumentor().instrument()
    yield exporter
    URLLib3Instrumentor().uninstrument()
    provider.shutdown()


@pytest.fixture
def spans(recorder: InMemorySpanExporter) -> InMemorySpanExporter:
    recorder.clear()
    return recorder


def trace_of(order_id: str) -> str:
    """The id of the order's trace, in hexadecimal."""
    return order_id.removeprefix("ord_")


def trace_ids(spans: InMemorySpanExporter) -> set[str]:
    return {f"{span.context.trace_id:032x}" for span in spans.get_finished_spans() if span.context}


def test_one_trace_leads_from_the_http_request_to_stripe(
    orders_table: str, sample: Sample, lambda_context: LambdaContext, log: Log, spans: InMemorySpanExporter
) -> None:
    """Through three functions, which pass nothing on about it: its id is the order's."""
    api, sns, service = Client(orders_table, sample, lambda_context, log), Sns(), ChargeHarness(now=NOW.timestamp())
    order_id = api.post(order())[1]["order_id"]
    stored = StoredOrder.from_item(api.stored()[0])
    Topic(sns, "order-events", SILENT, SILENT).publish([stored.placed_event()])  # type: ignore[arg-type]  # The one method.
    with running_standin() as standin, ThreadPoolExecutor(1) as threads:
        gateway = StripeGateway(stripe_client("sk_test_x", api_base=standin.base_url, bounds=BOUNDS))
        consumer = Consumer(
            model=ORDER_EVENT,
            handler=one_by_one(lambda event: handle(event, service.charges(gateway))),
            queue=SILENT,
            logger=SILENT,
            count=SILENT,
            threads=threads,
        )
        # A batch's records are processed on threads.
        assert threads.submit(consumer.process, Delivery("message", "receipt", 1, sns.messages[0])).result()
    ours = [span for span in spans.get_finished_spans() if f"{span.context.trace_id:032x}" == trace_of(order_id)]
    assert [span.name for span in ours if span.name != "POST"] == ["POST /orders", "publish", "onecharge.order.placed"]
    charged = ours[-1]
    assert requested_within(charged, ours) == ["/v1/payment_intents", "/v1/payment_intents/{id}/confirm"]


def requested_within(parent: ReadableSpan, spans: list[ReadableSpan]) -> list[str]:
    """The paths of the requests that a span is the parent of."""
    within = [each for each in spans if each.parent and each.parent.span_id == parent.context.span_id]
    paths = [str((each.attributes or {})["http.url"]).partition("/v1/")[2].split("/") for each in within]
    return ["/v1/" + "/".join("{id}" if part.startswith("pi_") else part for part in path) for path in paths]


def test_a_request_about_several_orders_is_a_span_in_the_trace_of_each(spans: InMemorySpanExporter) -> None:
    """And what is done within belongs to none of them."""
    with order_spans("publish", [ORDER_ID, OTHER_ORDER_ID]):
        trace.get_tracer("test").start_span("within").end()
    within, *published = spans.get_finished_spans()
    assert {f"{span.context.trace_id:032x}" for span in published} == {trace_of(ORDER_ID), trace_of(OTHER_ORDER_ID)}
    assert f"{within.context.trace_id:032x}" not in {trace_of(ORDER_ID), trace_of(OTHER_ORDER_ID)}


def test_a_failed_span_repeats_nothing_of_the_error(spans: InMemorySpanExporter) -> None:
    """An error's message may hold what Stripe or a customer sent."""
    with pytest.raises(ValueError, match="secret"), order_span("onecharge.order.placed", ORDER_ID):
        raise ValueError("a secret")
    [span] = spans.get_finished_spans()
    assert (span.status.status_code, span.status.description, span.events) == (trace.StatusCode.ERROR, None, ())
    assert "secret" not in span.to_json()


@pytest.mark.parametrize("order_id", [None, "", "ord_" + "0" * 32, "ord_1", "../" + ORDER_ID, ORDER_ID.upper()])
def test_what_is_no_order_has_no_trace(order_id: str | None, spans: InMemorySpanExporter) -> None:
    """A path of a request may hold anything; and a trace of zeros would be invalid."""
    with order_span("GET /orders/{order_id}", order_id), order_spans("publish", [order_id or ""]):
        pass
    assert spans.get_finished_spans() == ()


def test_without_the_layer_nothing_of_opentelemetry_is_imported() -> None:
    """So that a deployment without traces does not pay for them at its cold starts."""
    program = (
        "import sys, charge_order.app, orders_api.app, publish_events.app\n"
        "from onecharge.runtime.tracing import order_span, order_spans\n"
        f"with order_span('a', {ORDER_ID!r}), order_spans('b', [{ORDER_ID!r}]): pass\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, cwd=PROJECT, env={"PYTHONPATH": "functions:shared"}, timeout=60
    )
