"""docs/openapi.json says what the code does: every route, and nothing else."""

from tests.support import openapi
from tests.support.harness import load_template


def described() -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in openapi.document()["paths"].items() for method in methods}


def test_the_committed_document_is_what_the_code_says() -> None:
    """After a change of a route, a model or a problem, `make openapi` shows in the diff what clients will see."""
    assert openapi.DOCUMENT.read_text() == openapi.text(), "run `make openapi`"


def test_every_route_is_described() -> None:
    """template.yaml and the document have the same routes, but for the webhook, which is Stripe's."""
    events = [
        event["Properties"]
        for resource in load_template()["Resources"].values()
        for event in resource["Properties"].get("Events", {}).values()
        if event["Type"] == "HttpApi" and "Path" in event["Properties"]
    ]
    assert {(each["Method"], each["Path"]) for each in events} - {("POST", "/stripe/events")} == described()


def test_each_route_has_its_own_description() -> None:
    """No two have the same method and path, or the same operationId."""
    assert len(described()) == len({route.name for route in openapi.ROUTES}) == len(openapi.ROUTES)
