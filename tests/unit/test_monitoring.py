"""monitoring.yaml: alarms, causes, metrics and docs/runbook.md agree; one cause wakes once."""

import json
import re
from typing import Any

import pytest

from onecharge.runtime.alarms import Cause
from testing.harness import PROJECT, load_template

RESOURCES = load_template("monitoring.yaml")["Resources"]
METRIC_ALARMS = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"].endswith("::Alarm")}
COMPOSITES = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"].endswith("CompositeAlarm")}
ALARMS = METRIC_ALARMS | COMPOSITES
RUNBOOK = (PROJECT / "docs/runbook.md").read_text()
ENTRIES = re.findall(r"(?m)^## (\w+)$", RUNBOOK.partition("\n# Procedures")[0])


def rule_of(composite: dict[str, Any]) -> str:
    """Its rule, with the logical ids of its children."""
    join: list[Any] = composite["AlarmRule"]["Join"]
    return f" {join[0]} ".join(each.removeprefix("Sub ") for each in join[1])


def children_of(composite: dict[str, Any]) -> list[str]:
    """The alarms that set it to ALARM; not those that it leaves out."""
    return re.findall(r"(?<!NOT )ALARM\(\$\{(\w+)\}\)", rule_of(composite))


def dimension(alarm: dict[str, Any], name: str) -> str | None:
    return next((each["Value"] for each in alarm["Dimensions"] if each["Name"] == name), None)


def test_every_cause_has_one_alarm_of_its_name() -> None:
    """A new cause without an alarm would be counted, and wake nobody."""
    watched = {name: dimension(each, "cause") for name, each in METRIC_ALARMS.items() if each["MetricName"] == "Alarm"}
    assert watched == {cause.value: cause.value for cause in Cause}


def test_every_alarm_is_counted_with_its_cause_and_every_cause_is_counted() -> None:
    """Without a cause it would be in no CloudWatch alarm; an unused cause would be an alarm that never comes."""
    sources = [path for folder in ("functions", "shared") for path in (PROJECT / folder).rglob("*.py")]
    code = "\n".join(path.read_text() for path in sources if path.name != "alarms.py")
    assert re.findall(r"""counts?\(["']Alarm["']\)""", code) == []
    assert {cause for cause in Cause if f"Cause.{cause.name}" not in code} == set()


def test_every_metric_of_ours_that_is_watched_is_counted() -> None:
    """docs/metrics.md has what the code counts; a misspelt name would never be in ALARM."""
    documented = re.findall(r"`([^`]+)`", (PROJECT / "docs/metrics.md").read_text())
    watched = {each["MetricName"] for each in METRIC_ALARMS.values() if not each["Namespace"].startswith("AWS/")}
    assert watched - set(documented) == set()
    assert "Alarm" in watched


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_is_named_after_its_stack_and_names_its_entry(name: str) -> None:
    """Two stacks in one account do not overwrite each other's alarms; whoever is woken knows where to read."""
    assert ALARMS[name]["AlarmName"] == f"Sub ${{StackName}}-{name}"
    description = ALARMS[name]["AlarmDescription"]
    entry = re.fullmatch(r".+\. docs/runbook\.md#(\w+)", description)
    assert entry, description
    assert entry[1] in [each.lower() for each in ENTRIES]
    assert len(description) <= 1024, "the longest that CloudWatch takes"


def test_every_entry_is_of_an_alarm() -> None:
    """An entry that no alarm names would never be read."""
    named = {each["AlarmDescription"].rpartition("#")[2] for each in ALARMS.values()}
    assert sorted(each.lower() for each in ENTRIES) == sorted(named)


def test_an_entry_of_a_composite_alarm_lists_its_children() -> None:
    """It says only what is wrong; they say why."""
    for name, composite in COMPOSITES.items():
        entry = RUNBOOK.partition(f"\n## {name}\n")[2].partition("\n## ")[0].partition("\n# ")[0]
        # All DLQs in one composite alarm are named as the four of them.
        children = {METRIC_ALARMS[each]["AlarmDescription"].rpartition("#")[2] for each in children_of(composite)}
        missing = {each for each in children if not each.endswith("dlqnotempty") and f"(#{each})" not in entry}
        assert missing == set(), name


def test_only_composite_alarms_notify_and_each_alarm_is_in_exactly_one() -> None:
    """One cause wakes once; and none is left out."""
    assert [name for name, each in METRIC_ALARMS.items() if "AlarmActions" in each] == []
    assert all(each["AlarmActions"] == each["OKActions"] for each in COMPOSITES.values())
    children = [child for each in COMPOSITES.values() for child in children_of(each)]
    assert sorted(children) == sorted(METRIC_ALARMS)


@pytest.mark.parametrize("name", COMPOSITES)
def test_the_topic_is_as_urgent_as_the_description_says(name: str) -> None:
    """A page at any time, or a warning in working hours."""
    urgency = COMPOSITES[name]["AlarmDescription"].partition(". ")[0]
    assert COMPOSITES[name]["AlarmActions"] == [{"PAGE": "Ref PageTopic", "WARNING": "Ref WarningTopic"}[urgency]]


@pytest.mark.parametrize("name", METRIC_ALARMS)
def test_what_missing_data_means_is_said(name: str) -> None:
    """Breaching where nothing reported is what the alarm is for; the default, missing, would keep the last state."""
    breaching = name.endswith("NotRun")
    assert METRIC_ALARMS[name]["TreatMissingData"] == ("breaching" if breaching else "notBreaching")


@pytest.mark.parametrize("name", METRIC_ALARMS)
def test_cloudwatch_takes_the_range_that_is_evaluated(name: str) -> None:
    """At most a day for periods below an hour, else a week (Amazon CloudWatch API Reference, PutMetricAlarm)."""
    alarm = METRIC_ALARMS[name]
    assert alarm["Period"] % 60 == 0
    assert alarm["Period"] * alarm["EvaluationPeriods"] <= (86400 if alarm["Period"] < 3600 else 7 * 86400)
    assert alarm.get("DatapointsToAlarm", 1) <= alarm["EvaluationPeriods"]


# ---------------------------------------------------------------- dashboard and saved queries


def resolved(value: Any) -> str:
    """A text with CloudFormation's functions resolved; what only a deployment knows is in angle brackets."""
    match value:
        case {"Join": [str(separator), list(parts)]}:
            return separator.join(map(resolved, parts))
        case {"Sub": [text, dict(names)]}:
            return _substituted(resolved(text), {name: resolved(each) for name, each in names.items()})
        case str() if value.startswith("Sub "):
            return _substituted(value.removeprefix("Sub "), {})
        case _:
            return str(value)


def _substituted(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\$\{([\w:]+)\}", lambda name: names.get(name[1], f"<{name[1]}>"), text)


def widgets() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(resolved(RESOURCES["Dashboard"]["Properties"]["DashboardBody"]))["widgets"]
    return found


def test_the_dashboard_is_json_and_shows_every_composite_alarm() -> None:
    """CloudFormation does not parse it; CloudWatch refuses what is no JSON when it is deployed."""
    [alarms] = [each["properties"]["alarms"] for each in widgets() if each["type"] == "alarm"]
    assert [arn.rpartition("<StackName>-")[2] for arn in alarms] == list(COMPOSITES)


def test_every_metric_of_the_dashboard_is_counted() -> None:
    """docs/metrics.md has ours; the others are AWS's, of the resources that the parameters name."""
    documented = set(re.findall(r"`([^`]+)`", (PROJECT / "docs/metrics.md").read_text()))
    shown = [metric for each in widgets() for metric in each["properties"].get("metrics", [])]
    expressions = [each[0]["expression"] for each in shown if isinstance(each[0], dict)]
    ours = {each[1].partition(".")[0] for each in shown if each[0] == "onecharge/<StackName>"}
    ours |= {name for text in expressions if "onecharge/" in text for name in re.findall(r'MetricName="(\w+)"', text)}
    assert {"OrderPlaced", "Order", "MoneyCharged", "StripeSeconds", "DuplicateIgnored"} <= ours
    assert {name for name in ours if name not in documented and f"{name}.{{status}}" not in documented} == set()


def test_a_saved_query_asks_for_what_is_logged() -> None:
    """A message that a function no longer writes would make a query find nothing, when it is needed."""
    queries = [each["Properties"] for each in RESOURCES.values() if each["Type"].endswith("QueryDefinition")]
    sources = "\n".join(path.read_text() for name in ("functions", "shared") for path in (PROJECT / name).rglob("*.py"))
    for query in queries:
        for message in re.findall(r'message = "([^"]+)"', query["QueryString"]):
            assert message in sources or message == "payment finalized", query["Name"]
    assert 'f"{self.subject.lower()} finalized"' in sources, "makes it: payment finalized"
    named = re.findall(r"`([a-z]+(?:-[a-z]+)+)`", RUNBOOK.partition("# What notifies")[0])
    assert sorted(named) == sorted(query["Name"].rpartition("/")[2] for query in queries)


def test_every_function_and_queue_is_watched() -> None:
    """A new one without an alarm would fail unseen."""
    template = load_template()["Resources"]
    functions = {name for name, each in template.items() if each["Type"] == "AWS::Serverless::Function"}
    queues = {name for name, each in template.items() if each["Type"] == "AWS::SQS::Queue"}
    watched: dict[str, set[Any]] = {"FunctionName": set(), "QueueName": set()}
    for alarm in METRIC_ALARMS.values():
        if alarm["MetricName"] in ("Errors", "ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"):
            for each in alarm["Dimensions"]:
                watched[each["Name"]].add(each["Value"])
    assert watched["FunctionName"] == {f"Ref {name}Name" for name in functions}
    assert watched["QueueName"] == {f"Ref {name}Name" for name in queues}
