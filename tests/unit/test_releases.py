"""template.yaml: every change of a function is a new version of it, which the alias and what rolls it back follow."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from onecharge.runtime.alarms import Cause
from testing.harness import load_intrinsics, load_template

TEMPLATE = load_template()
FUNCTIONS = {
    name: resource["Properties"]
    for name, resource in TEMPLATE["Resources"].items()
    if resource["Type"] == "AWS::Serverless::Function"
}
NOT_IN_A_VERSION = {"Policies", "Events", "Role", "DeploymentPreference", "VersionDescription", "CodeUri"}


def words(value: Any) -> set[str]:
    """Every word in a value, its keys and short forms (`Ref X`, as load_template reads them) included."""
    return set(re.findall(r"\w+", str(value)))


def parameters_in(value: Any) -> set[str]:
    return words(value) & set(TEMPLATE["Parameters"])


def conditions_in(value: Any) -> Iterator[Any]:
    """The conditions that a value names: their parameters decide, too."""
    return (condition for name, condition in TEMPLATE["Conditions"].items() if name in words(value))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_another_value_of_a_parameter_is_another_version(function: str) -> None:
    """SAM would leave the alias at the old value: it compares the template's text only. So the version's description
    has every parameter that a version holds, and with it the version is replaced.
    """
    properties = {name: value for name, value in FUNCTIONS[function].items() if name not in NOT_IN_A_VERSION}
    of_globals = {
        name: value for name, value in TEMPLATE["Globals"]["Function"].items() if name not in NOT_IN_A_VERSION
    }
    held = parameters_in([properties, of_globals, *conditions_in([properties, of_globals])])
    assert parameters_in(FUNCTIONS[function]["VersionDescription"]) == held
    assert FUNCTIONS[function]["AutoPublishAliasAllProperties"] is True


def test_a_description_that_changes_changes_the_function() -> None:
    """Lambda publishes nothing if nothing has changed, and CloudFormation fails then: so each value that is in a
    description is in a variable, too.
    """
    variables = TEMPLATE["Globals"]["Function"]["Environment"]["Variables"]
    for function, properties in FUNCTIONS.items():
        described = parameters_in(properties["VersionDescription"])
        own = parameters_in(properties["Environment"]["Variables"])
        assert described <= parameters_in(variables["DEPLOYED"]) | own, function


LONGEST_DESCRIPTION = 256
"""Of a version, in characters (AWS Lambda API Reference, PublishVersion)."""
LONGEST_SECRET = "arn:aws:secretsmanager:ap-southeast-2:123456789012:secret:" + "s" * 67
LONGEST = {
    "Release": "r" * 40,
    "StripeApiBase": "https://api.stripe.com",
    "LookUpOrdersPlacedBefore": "1763769600",
    "AwsEndpointUrl": "",
}


def longest(value: Any) -> str:
    """The longest text that an expression of the template may become on AWS."""
    if isinstance(value, str):
        return value
    [(function, given)] = value.items()
    match function:
        case "Ref":
            parameter = TEMPLATE["Parameters"][given]
            if given in LONGEST or given.endswith("SecretArn"):
                text = LONGEST.get(given, LONGEST_SECRET)
                assert re.search(parameter.get("AllowedPattern", ""), text), given
                return text
            return max(map(str, parameter.get("AllowedValues", [parameter["Default"]])), key=len)
        case "If":
            return max(map(longest, given[1:]), key=len)
        case "Join":
            return str(given[0]).join(map(longest, given[1]))
        case "Select":
            separator, text = given[1]["Split"]
            return longest(text).split(separator)[int(given[0])]
        case "Sub":
            return re.sub(r"\$\{(\w+)\}", lambda name: longest({"Ref": name[1]}), given)
    raise NotImplementedError(function)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_description_is_never_too_long(function: str) -> None:
    """Lambda would refuse the version, and CloudFormation roll back a deployment for the length of a secret's name."""
    described = longest(load_intrinsics()["Resources"][function]["Properties"]["VersionDescription"])
    assert len(described) <= LONGEST_DESCRIPTION, described


def test_a_new_layer_is_a_new_version_of_each_function() -> None:
    """SAM does that only if it is asked to."""
    layers = [each for each in TEMPLATE["Resources"].values() if each["Type"] == "AWS::Serverless::LayerVersion"]
    assert {each["Properties"]["PublishLambdaVersion"] for each in layers} == {True}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_errors_of_a_new_version_roll_it_back(function: str) -> None:
    """If traffic is shifted to it gradually: the alarm is on this version's errors only. What a schedule invokes has no
    traffic to shift.
    """
    preference = FUNCTIONS[function]["DeploymentPreference"]
    if any(event["Type"] == "Schedule" for event in FUNCTIONS[function].get("Events", {}).values()):
        assert preference == {"Type": "AllAtOnce"}
        return
    alarm = function.removesuffix("Function") + "NewVersionErrors"
    of_this_version, *of_the_stack = preference["Alarms"]
    assert of_this_version == f"Ref {alarm}"
    names = {each.removeprefix("Sub ${AWS::StackName}-") for each in of_the_stack}
    assert names <= {str(cause) for cause in Cause}
    dimensions = TEMPLATE["Resources"][alarm]["Properties"]["Dimensions"]
    assert {each["Name"]: each["Value"] for each in dimensions} == {
        "FunctionName": f"Ref {function}",
        "Resource": f"Sub ${{{function}}}:live",
        "ExecutedVersion": f"GetAtt {function}.Version.Version",
    }


def test_a_function_that_is_invoked_by_another_is_invoked_at_its_alias() -> None:
    """Otherwise new code would be asked while the alias is still at the old version."""
    named = {
        f"{function}.{name}: {value}"
        for function, properties in FUNCTIONS.items()
        for name, value in properties["Environment"]["Variables"].items()
        if name.endswith("_FUNCTION") and not str(value).endswith(".Alias")
    }
    assert named == set()
