"""A shim for one gap of the emulator: its CloudFormation knows neither composite alarms nor saved queries.

Before the deployment these resources are taken out of the built template of the alarms; after it, the composite alarms
are created with CloudWatch's own API, which the emulator has. It evaluates their rules as the states of their alarms
change. The saved queries stay out: there is no Logs Insights here. On AWS none of this is used.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from local.emulator import Emulator

MONITORING = "Monitoring"
"""The logical id of the nested stack."""
_COMPOSITE = "AWS::CloudWatch::CompositeAlarm"
_UNKNOWN_TYPES = {_COMPOSITE, "AWS::Logs::QueryDefinition"}


def take_out(build_dir: Path) -> dict[str, Any]:
    """Take the resources that the emulator does not know out of the built template; returns them by logical id."""
    path = build_dir / MONITORING / "template.yaml"
    template = yaml.safe_load(path.read_text())
    resources = template["Resources"]
    taken = {name: resources.pop(name) for name in list(resources) if resources[name]["Type"] in _UNKNOWN_TYPES}
    path.unlink()  # A new file: the built one may be linked into several runs.
    path.write_text(yaml.safe_dump(template, sort_keys=False))
    return taken


def create_composite_alarms(emulator: Emulator, stack_name: str, taken: Mapping[str, Any]) -> list[str]:
    """Create those of the resources that are composite alarms; returns their names."""
    cloudformation, cloudwatch = emulator.client("cloudformation"), emulator.client("cloudwatch")
    resources = cloudformation.describe_stack_resources(StackName=stack_name)["StackResources"]
    [nested] = [each["PhysicalResourceId"] for each in resources if each["LogicalResourceId"] == MONITORING]
    [stack] = cloudformation.describe_stacks(StackName=nested)["Stacks"]
    values = {each["ParameterKey"]: each["ParameterValue"] for each in stack["Parameters"]}
    for each in cloudformation.describe_stack_resources(StackName=stack["StackName"])["StackResources"]:
        values[each["LogicalResourceId"]] = each["PhysicalResourceId"]
    created = []
    for name, properties in _in_order(taken):
        alarm = {key: resolve(value, values) for key, value in properties.items()}
        cloudwatch.put_composite_alarm(**alarm)
        values[name] = alarm["AlarmName"]
        created.append(alarm["AlarmName"])
    return created


def _in_order(taken: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The composite alarms as they are written: one that names another is below it."""
    for name, resource in taken.items():
        if resource["Type"] == _COMPOSITE:
            yield name, resource["Properties"]


def resolve(value: Any, values: Mapping[str, str]) -> Any:
    """A property with `Ref` and `Fn::Sub` resolved; a composite alarm uses no other function."""
    match value:
        case {"Ref": str(name)}:
            return values[name]
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{(\w+)\}", lambda name: values[name[1]], text)
        case list():
            return [resolve(each, values) for each in value]
        case _:
            return value
