"""template.yaml: which events reach which queue, and where what cannot be delivered goes."""

import re
from typing import Any

import pytest

from onecharge.contract.events import EventType
from ops.command_line import parser
from tests.support.harness import load_intrinsics, load_template

RESOURCES = load_template()["Resources"]


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


def test_a_dlq_takes_messages_of_its_queue_alone() -> None:
    """Each names the other, so the DLQ names it by its name. The subscriptions' DLQ takes none of a queue."""
    queues = {
        name: each["Properties"]
        for name, each in load_intrinsics()["Resources"].items()
        if each["Type"] == "AWS::SQS::Queue"
    }
    assert queues.pop("SubscriptionsDlq")["RedriveAllowPolicy"] == {"redrivePermission": "denyAll"}
    for name, queue in queues.items():
        if name.endswith("Dlq"):
            continue
        dlq = queue["RedrivePolicy"]["deadLetterTargetArn"]["GetAtt"].removesuffix(".Arn")
        arn = "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:${Queue}"
        assert queues[dlq]["RedriveAllowPolicy"] == {
            "redrivePermission": "byQueue",
            "sourceQueueArns": [{"Sub": [arn, {"Queue": queue["QueueName"]}]}],
        }
        assert "AWS::StackId" in str(queue["QueueName"]), "SQS takes the name of a deleted queue only after 60 s"


def test_two_stacks_of_an_account_share_no_name() -> None:
    """Of a layer, whose older version is not left behind."""
    layers = [each["Properties"] for each in RESOURCES.values() if each["Type"] == "AWS::Serverless::LayerVersion"]
    assert all(each["LayerName"].startswith("Sub ${AWS::StackName}-") for each in layers)
    assert {each["RetentionPolicy"] for each in layers} == {"Delete"}


def guarded_by(policy: dict[str, Any]) -> list[str]:
    """The queues or topics that the policy is of."""
    return [*policy.get("Queues", ()), *policy.get("Topics", ())]


def test_every_queue_and_topic_refuses_requests_without_tls() -> None:
    """Each has one policy, with that statement."""
    policies = [each["Properties"] for each in RESOURCES.values() if "PolicyDocument" in each.get("Properties", {})]
    guarded = [name.removeprefix("Ref ") for policy in policies for name in guarded_by(policy)]
    kinds = {"AWS::SQS::Queue", "AWS::SNS::Topic"}
    assert sorted(guarded) == sorted(name for name, each in RESOURCES.items() if each["Type"] in kinds)
    for policy in policies:
        statements = policy["PolicyDocument"]["Statement"]
        assert {"Bool": {"aws:SecureTransport": "false"}} in [
            each["Condition"] for each in statements if each["Effect"] == "Deny"
        ]


def test_what_holds_orders_and_payments_survives() -> None:
    """A table with a stream, or that its owner fills: it is retained, protected in live mode, and can be restored."""
    template = load_template()
    tables = {name: each for name, each in RESOURCES.items() if each["Type"] == "AWS::DynamoDB::Table"}
    protected = {name for name, each in tables.items() if "DeletionProtectionEnabled" in each["Properties"]}
    assert protected == {name for name, each in tables.items() if each.get("UpdateReplacePolicy") == "Retain"}
    assert protected >= {name for name, each in tables.items() if "StreamSpecification" in each["Properties"]}
    for name in protected:
        assert tables[name]["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert tables[name]["DeletionPolicy"] == "RetainExceptOnCreate"
    assert {name: each["DeletionProtection"] for name, each in template["Mappings"]["Profile"].items()} == {
        "live": True,
        "sandbox": False,
        "local": False,
    }


def test_every_table_that_grows_has_a_fuse() -> None:
    """It blows for a loop or an attack, not on a good day: as many orders as the API admits need less than half."""
    write_units_of_an_order = 3  # of the Payments table, which an order needs most of
    tables = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"] == "AWS::DynamoDB::Table"}
    fuses = {name: each.get("OnDemandThroughput", {}) for name, each in tables.items()}
    orders_a_second = RESOURCES["OrdersApi"]["Properties"]["DefaultRouteSettings"]["ThrottlingRateLimit"]
    needed = 2 * write_units_of_an_order * orders_a_second
    without = {name for name, fuse in fuses.items() if fuse.get("MaxWriteRequestUnits", 0) <= needed}
    assert [name for name in without if not name.endswith("StateTable")] == []


# ---------------------------------------------------------------- parameters and outputs

TEMPLATE = load_template()


def test_enter_answers_every_question_of_a_guided_deployment() -> None:
    """Each of at most twelve parameters has a default."""
    assert len(TEMPLATE["Parameters"]) <= 12
    assert [name for name, parameter in TEMPLATE["Parameters"].items() if "Default" not in parameter] == []


@pytest.mark.parametrize("name", TEMPLATE["Parameters"])
def test_a_parameter_is_described_and_takes_no_nonsense(name: str) -> None:
    """A wrong value is refused before anything is changed, with a sentence instead of a pattern."""
    parameter = TEMPLATE["Parameters"][name]
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
    typed = [each.removeprefix("Sub ").replace("${AWS::StackName}", "shop") for each in commands]
    named = RESOURCES["StripeSecret"]["Properties"]["Name"].removeprefix("Sub ").replace("${AWS::StackName}", "shop")
    assert f"--secret-id {named} " in typed[0]
    [webhook, check] = [parser().parse_args(each.split(" -m ops ")[1].split()) for each in typed[2:]]
    assert (webhook.command, webhook.action, webhook.stack, webhook.yes) == ("webhook", "create", "shop", True)
    assert (check.command, check.stack, check.yes) == ("check", "shop", True)


def test_no_secret_has_a_value_in_the_template() -> None:
    """Everybody who may read the stack would see it. Without one there is no version, an outage that backs off."""
    secrets = [each["Properties"] for each in RESOURCES.values() if each["Type"] == "AWS::SecretsManager::Secret"]
    assert [each.keys() & {"SecretString", "GenerateSecretString"} for each in secrets] == [set(), set()]


def test_one_page_calls_the_api_from_a_browser() -> None:
    """The one of WebOrigin, with the headers that it sends, and without cookies; a customer signs in to no other."""
    assert RESOURCES["OrdersApi"]["Properties"]["CorsConfiguration"] == {
        "AllowOrigins": ["Ref WebOrigin"],
        "AllowMethods": ["GET", "POST"],
        "AllowHeaders": ["authorization", "content-type", "idempotency-key"],
        "MaxAge": 600,
    }
    routes = [
        event["Properties"]
        for resource in RESOURCES.values()
        for event in resource["Properties"].get("Events", {}).values()
        if event["Type"] == "HttpApi"
    ]
    assert routes
    # A browser asks for permission by OPTIONS, without a token. A route that takes every method answers 401 in place of
    # API Gateway, and no page reaches the API (API Gateway Developer Guide, "Configure CORS for HTTP APIs").
    assert {each.get("Method") for each in routes} <= {"GET", "POST"}
    client = RESOURCES["CustomersClient"]["Properties"]
    assert client["CallbackURLs"] == client["LogoutURLs"] == ["Sub ${WebOrigin}/"]
