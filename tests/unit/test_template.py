"""template.yaml: which events reach which queue, and where what cannot be delivered goes."""

import re

import pytest

from onecharge.contract.events import EventType
from ops.command_line import parser
from tests.support.harness import load_template

TEMPLATE = load_template()
RESOURCES = TEMPLATE["Resources"]


def of_type(kind: str) -> dict[str, dict[str, object]]:
    """The properties of the resources of this type."""
    return {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == f"AWS::{kind}"}


def test_the_payments_queue_gets_orders_and_cancellations() -> None:
    """And nothing else: what else the order service asks for has a queue of its own."""
    wanted = [EventType.ORDER_PLACED, EventType.CANCEL_REQUESTED]
    assert RESOURCES["PaymentsSubscription"]["Properties"]["FilterPolicy"] == {"event_type": wanted}


def test_a_record_is_retried_for_as_long_as_its_stream_keeps_it() -> None:
    """Every stream of publish_events: Lambda itself discards no record, however often its batch fails."""
    for event in RESOURCES["PublishEventsFunction"]["Properties"]["Events"].values():
        properties = event["Properties"]
        assert (properties["MaximumRetryAttempts"], properties["BisectBatchOnFunctionError"]) == (-1, True)
        assert properties["MaximumRecordAgeInSeconds"] == -1


def test_each_queue_has_a_dlq_of_its_own() -> None:
    """An outage of a day fills none: a message is received 500 times before."""
    redrives = {name: each["RedrivePolicy"] for name, each in of_type("SQS::Queue").items() if "RedrivePolicy" in each}
    assert redrives == {
        f"{name}Queue": {"deadLetterTargetArn": f"GetAtt {name}Dlq.Arn", "maxReceiveCount": 500}
        for name in ("Payments", "OrderUpdates", "Refunds")
    }


def test_every_queue_and_topic_refuses_requests_without_tls() -> None:
    """Each has one policy, with that statement."""
    policies = [each["Properties"] for each in RESOURCES.values() if "PolicyDocument" in each.get("Properties", {})]
    guarded = [name for policy in policies for name in (*policy.get("Queues", ()), *policy.get("Topics", ()))]
    expected = {**of_type("SQS::Queue"), **of_type("SNS::Topic")}
    assert sorted(guarded) == sorted(f"Ref {name}" for name in expected)
    for policy in policies:
        denied = [each["Condition"] for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
        assert {"Bool": {"aws:SecureTransport": "false"}} in denied


def test_what_holds_orders_and_payments_survives() -> None:
    """A table with a stream, or that its owner fills: it is retained, protected in live mode, and can be restored."""
    tables = of_type("DynamoDB::Table")
    protected = {name for name, each in tables.items() if "DeletionProtectionEnabled" in each}
    assert protected == {name for name in tables if RESOURCES[name].get("UpdateReplacePolicy") == "Retain"}
    assert protected >= {name for name, each in tables.items() if "StreamSpecification" in each}
    for name in protected:
        assert tables[name]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert RESOURCES[name]["DeletionPolicy"] == "RetainExceptOnCreate"
        assert tables[name]["DeletionProtectionEnabled"] == {"If": ["IsLive", True, False]}
    assert TEMPLATE["Conditions"]["IsLive"] == "Equals ['Ref Profile', 'live']"


def test_every_table_that_grows_has_a_fuse() -> None:
    """It blows for a loop or an attack, not on a good day: as many orders as the API admits need less than half."""
    write_units_of_an_order = 3  # of the Payments table, which an order needs most of
    orders_a_second = RESOURCES["OrdersApi"]["Properties"]["DefaultRouteSettings"]["ThrottlingRateLimit"]
    needed = 2 * write_units_of_an_order * orders_a_second
    for name, table in load_template()["Resources"].items():
        if table["Type"] == "AWS::DynamoDB::Table" and not name.endswith("StateTable"):
            assert table["Properties"]["OnDemandThroughput"]["MaxWriteRequestUnits"] > needed, name


@pytest.mark.parametrize("name", TEMPLATE["Parameters"])
def test_a_parameter_is_described_and_takes_no_nonsense(name: str) -> None:
    """Enter answers every question of a guided deployment. A wrong value is refused before anything is changed, with a
    sentence instead of a pattern."""
    parameter = TEMPLATE["Parameters"][name]
    assert "Default" in parameter
    assert parameter["Description"].endswith((".", "_abc"))
    assert parameter.keys() & {"AllowedPattern", "AllowedValues", "MinValue"}
    assert "AllowedPattern" not in parameter or parameter["ConstraintDescription"]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("JwtIssuer", "https://example.eu.auth0.com/", "example.eu.auth0.com"),
        ("JwtAudience", "shop", ""),
        ("WebOrigin", "https://shop.example", "http://shop.example"),
        ("WebOrigin", "http://localhost:3000", "https://shop.example/"),
        ("WebOrigin", "http://127.0.0.1:8000", "*"),
        ("AlarmEmail", "", "nobody"),
        ("StripeApiBase", "https://api.stripe.com", "https://api.stripe.com/v1"),
    ],
)
def test_a_pattern_takes_what_is_meant(name: str, good: str, bad: str) -> None:
    """And nothing that only looks like it."""
    pattern = TEMPLATE["Parameters"][name]["AllowedPattern"]
    assert re.fullmatch(pattern, good)
    assert not re.fullmatch(pattern, bad)


def test_a_deployment_says_what_to_type_next() -> None:
    """The commands are the stack's own, with arguments that they take."""
    commands = [each["Value"] for name, each in TEMPLATE["Outputs"].items() if name.startswith("Next")]
    key, _, *ours = [each.removeprefix("Sub ").replace("${AWS::StackName}", "shop") for each in commands]
    named = RESOURCES["StripeSecret"]["Properties"]["Name"].removeprefix("Sub ").replace("${AWS::StackName}", "shop")
    assert f"--secret-id {named} " in key
    [webhook, check] = [parser().parse_args(each.split(" -m ops ")[1].split()) for each in ours]
    assert (webhook.command, webhook.action, webhook.stack, webhook.yes) == ("webhook", "create", "shop", True)
    assert (check.command, check.stack, check.yes) == ("check", "shop", True)


def test_no_secret_has_a_value_in_the_template() -> None:
    """Everybody who may read the stack would see it. Without one there is no version, an outage that backs off."""
    secrets = of_type("SecretsManager::Secret").values()
    assert [each.keys() & {"SecretString", "GenerateSecretString"} for each in secrets] == [set(), set()]


def test_one_page_calls_the_api_from_a_browser() -> None:
    """The one of WebOrigin, with the headers that it sends, and without cookies; a customer signs in to no other."""
    assert RESOURCES["OrdersApi"]["Properties"]["CorsConfiguration"] == {
        "AllowOrigins": ["Ref WebOrigin"],
        "AllowMethods": ["GET", "POST"],
        "AllowHeaders": ["authorization", "content-type", "idempotency-key"],
        "MaxAge": 600,
    }
    events = [event for each in RESOURCES.values() for event in each["Properties"].get("Events", {}).values()]
    methods = {event["Properties"].get("Method") for event in events if event["Type"] == "HttpApi"}
    # A browser asks for permission by OPTIONS, without a token. A route that takes every method answers 401 in place of
    # API Gateway, and no page reaches the API (API Gateway Developer Guide, "Configure CORS for HTTP APIs").
    assert methods == {"GET", "POST"}
    client = RESOURCES["CustomersClient"]["Properties"]
    assert client["CallbackURLs"] == client["LogoutURLs"] == ["Sub ${WebOrigin}/"]
