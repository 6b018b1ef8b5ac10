"""docs/openapi.json says what the code does: every route, and nothing else."""

from local import openapi
from orders_api.routes import ROUTES
from testing.harness import LambdaContext, Log, Sample, load_template
from testing.orders_api import Client


def described() -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in openapi.document()["paths"].items() for method in methods}


def test_the_committed_document_is_what_the_code_says() -> None:
    """After a change of a route, a model or a problem, `make openapi` shows in the diff what clients will see."""
    assert openapi.DOCUMENT.read_text() == openapi.text(), "run `make openapi`"


def test_every_route_is_described(orders_table: str, sample: Sample, lambda_context: LambdaContext, log: Log) -> None:
    """The resolver, template.yaml and the document have the same routes."""
    resolver = Client(orders_table, sample, lambda_context, log).resolver
    routes = resolver._static_routes + resolver._dynamic_routes
    registered = {(route.method, route.openapi_path) for route in routes}
    events = load_template()["Resources"]["OrdersApiFunction"]["Properties"]["Events"].values()
    routed = [event["Properties"] for event in events if "Path" in event["Properties"]]
    deployed = {(route["Method"], route["Path"]) for route in routed}
    assert registered == deployed == described()


def test_each_route_has_its_own_description() -> None:
    """No two have the same method and path, or the same operationId."""
    assert len(described()) == len({route.name for route in ROUTES}) == len(ROUTES)
