"""template.yaml: every change of a function is a new version of it, which the alias and what rolls it back follow."""

import re
from typing import Any

from onecharge.runtime.alarms import Cause
from tests.support.harness import load_intrinsics, load_template

TEMPLATE = load_template()
GLOBALS = TEMPLATE["Globals"]["Function"]
FUNCTIONS = {
    name: resource["Properties"]
    for name, resource in TEMPLATE["Resources"].items()
    if resource["Type"] == "AWS::Serverless::Function"
}
NOT_IN_A_VERSION = {"Policies", "Events", "Role", "DeploymentPreference", "VersionDescription", "CodeUri"}


def words(value: Any) -> set[str]:
    """Every word in a value, its keys and short forms (`Ref X`, as load_template reads them) included."""
    return set(re.findall(r"\w+", str(value)))


def test_another_value_of_a_parameter_is_another_version() -> None:
    """SAM would leave the alias at the old value: it compares the template's text only. So each version's description
    has every parameter that a version holds, and a variable has it too, so that there is something new to publish.
    """
    held = [{k: v for k, v in each.items() if k not in NOT_IN_A_VERSION} for each in (GLOBALS, *FUNCTIONS.values())]
    conditions = [condition for name, condition in TEMPLATE["Conditions"].items() if name in words(held)]
    deployed = GLOBALS["Environment"]["Variables"]["DEPLOYED"]
    assert words([held, conditions]) & TEMPLATE["Parameters"].keys() == words(deployed) & TEMPLATE["Parameters"].keys()
    assert [name for name, each in FUNCTIONS.items() if each["VersionDescription"] != deployed] == []
    assert [name for name, each in FUNCTIONS.items() if each["AutoPublishAliasAllProperties"] is not True] == []


LONGEST_DESCRIPTION = 256
"""Of a version, in characters (AWS Lambda API Reference, PublishVersion)."""
LONGEST = {
    "Release": "r" * 40,
    "StripeApiBase": "https://api.stripe.com",
    "StripeSecretArn": "arn:aws:secretsmanager:ap-southeast-2:123456789012:secret:" + "s" * 67,
    "StripeWebhookSecretArn": "arn:aws:secretsmanager:ap-southeast-2:123456789012:secret:" + "w" * 67,
}


def longest(value: Any) -> str:
    """The longest text that an expression of the template may become on AWS."""
    if isinstance(value, str):
        return value
    [(function, given)] = value.items()
    match function:
        case "Ref":
            parameter = TEMPLATE["Parameters"][given]
            if given in LONGEST:
                assert re.search(parameter.get("AllowedPattern", ""), LONGEST[given]), given
                return LONGEST[given]
            return max(map(str, parameter.get("AllowedValues", [parameter["Default"]])), key=len)
        case "Join":
            return str(given[0]).join(map(longest, given[1]))
        case "Select":
            separator, text = given[1]["Split"]
            return longest(text).split(separator)[int(given[0])]
    raise NotImplementedError(function)


def test_a_description_is_never_too_long() -> None:
    """Lambda would refuse the version, and CloudFormation roll back a deployment for the length of a secret's name."""
    described = load_intrinsics()["Globals"]["Function"]["Environment"]["Variables"]["DEPLOYED"]
    assert len(longest(described)) <= LONGEST_DESCRIPTION, longest(described)


def test_a_new_layer_is_a_new_version_of_each_function() -> None:
    """SAM does that only if it is asked to."""
    assert TEMPLATE["Globals"]["LayerVersion"] == {"PublishLambdaVersion": True}


def test_errors_of_a_new_version_roll_it_back() -> None:
    """If traffic is shifted to it gradually: the alarm is on this version's errors only. What a schedule invokes has no
    traffic to shift.
    """
    causes = {f"Sub ${{AWS::StackName}}-{cause}" for cause in Cause}
    for function, properties in FUNCTIONS.items():
        preference = properties["DeploymentPreference"]
        if any(event["Type"] == "Schedule" for event in properties.get("Events", {}).values()):
            assert preference == {"Type": "AllAtOnce"}, function
            continue
        alarm = function.removesuffix("Function") + "NewVersionErrors"
        of_this_version, *of_the_stack = preference["Alarms"]
        assert of_this_version == f"Ref {alarm}"
        assert set(of_the_stack) <= causes, function
        dimensions = TEMPLATE["Resources"][alarm]["Properties"]["Dimensions"]
        assert {each["Name"]: each["Value"] for each in dimensions} == {
            "FunctionName": f"Ref {function}",
            "Resource": f"Sub ${{{function}}}:live",
            "ExecutedVersion": f"GetAtt {function}.Version.Version",
        }


def test_an_alarm_stops_no_deployment_of_the_sandbox() -> None:
    """It may be the one that the deployment mends."""
    is_shifted = {name: profile["IsShifted"] for name, profile in TEMPLATE["Mappings"]["Profile"].items()}
    assert is_shifted == {"live": True, "sandbox": False, "local": False}
