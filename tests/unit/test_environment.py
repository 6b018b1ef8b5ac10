"""template.yaml gives each function of the order service the environment that it reads."""

from importlib import import_module

import pytest

from testing.harness import load_template

FUNCTIONS = {
    "orders_api": "OrdersApiFunction",
    "place_due_orders": "PlaceDueOrdersFunction",
    "publish_events": "PublishEventsFunction",
    "republish": "RepublishFunction",
    "update_order": "UpdateOrderFunction",
}


@pytest.mark.parametrize(("function", "logical_id"), FUNCTIONS.items())
def test_a_function_has_the_variables_that_it_reads(aws: None, function: str, logical_id: str) -> None:
    """Put together with nothing else, and each of them is read: one that nobody reads is a reference too many."""
    template = load_template()
    variables = template["Resources"][logical_id]["Properties"]["Environment"]["Variables"]
    read: set[str] = set()

    class Environment(dict[str, str]):
        def __getitem__(self, name: str) -> str:
            read.add(name)
            return super().__getitem__(name)

    import_module(f"{function}.app").Application(Environment(variables))
    assert read == {name for name in variables if not name.startswith("POWERTOOLS_")}
