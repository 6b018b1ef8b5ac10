"""The template that CloudFormation gets on AWS, after SAM's transform."""

import json
import re
import subprocess
from graphlib import TopologicalSorter
from typing import Any

import pytest

from tests.support.harness import PROJECT

_TRANSFORM = """
import json, sys
from types import SimpleNamespace
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse
template = yaml_parse(open("template.yaml").read())
uris = {"AWS::Serverless::Function": "CodeUri", "AWS::Serverless::LayerVersion": "ContentUri"}
for resource in template["Resources"].values():
    if resource["Type"] in uris:
        resource["Properties"][uris[resource["Type"]]] = "s3://bucket/key"
print(json.dumps(transform(template, json.loads(sys.argv[1]), SimpleNamespace(load=dict))["Resources"]))
"""


def transformed(profile: str, **more: str) -> dict[str, Any]:
    """The resources of the transformed template."""
    parameters = {"Profile": profile, **more}
    done = subprocess.run(
        [str(PROJECT / ".venv/opt/sam/bin/python"), "-c", _TRANSFORM, json.dumps(parameters)],
        cwd=PROJECT,
        env={"AWS_DEFAULT_REGION": "us-east-1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def references(resource: dict[str, Any]) -> set[str]:
    text = json.dumps(resource)
    found = re.findall(r'"Ref": "(\w+)"|"Fn::GetAtt": \["(\w+)"|\$\{(\w+)', text)
    after = resource.get("DependsOn", [])
    return {name for names in found for name in names} | ({after} if isinstance(after, str) else set(after))


OWN_ISSUER = {"JwtIssuer": "https://a.example/", "JwtAudience": "shop,office"}


@pytest.mark.parametrize(
    ("profile", "more"),
    [("live", {}), ("sandbox", {}), ("live", OWN_ISSUER), ("sandbox", {"Messaging": "fifo"}), ("local", OWN_ISSUER)],
)
def test_no_resource_depends_on_itself(profile: str, more: dict[str, str]) -> None:
    """CloudFormation refuses a circle."""
    resources = transformed(profile, **more)
    graph = {name: references(each) & (resources.keys() - {name}) for name, each in resources.items()}
    TopologicalSorter(graph).prepare()
