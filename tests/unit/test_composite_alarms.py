"""The shim that creates composite alarms, which the emulator's CloudFormation does not know."""

from pathlib import Path

import yaml

from local.composite_alarms import MONITORING, take_out


def test_what_the_emulator_does_not_know_is_taken_out_of_the_built_template(tmp_path: Path) -> None:
    """And nothing else. The file may be linked into another run's build: it is written anew."""
    built = tmp_path / MONITORING / "template.yaml"
    built.parent.mkdir()
    types = {
        "DlqNotEmpty": "AWS::CloudWatch::Alarm",
        "GivenUp": "AWS::CloudWatch::CompositeAlarm",
        "Timeline": "AWS::Logs::QueryDefinition",
    }
    built.write_text(yaml.safe_dump({"Resources": {name: {"Type": type_} for name, type_ in types.items()}}))
    linked = tmp_path / "linked.yaml"
    linked.hardlink_to(built)
    assert list(take_out(tmp_path)) == ["GivenUp", "Timeline"]
    assert list(yaml.safe_load(built.read_text())["Resources"]) == ["DlqNotEmpty"]
    assert list(yaml.safe_load(linked.read_text())["Resources"]) == sorted(types)
