"""monitoring.yaml watches what the code counts, notifies once an incident, and names entries of docs/runbook.md."""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from onecharge.contract.states import OrderStatus
from onecharge.payments.stripe_metrics import NO_ANSWER, status_of, stripe_request
from onecharge.runtime.alarms import Cause
from onecharge.runtime.metrics import Alarm
from tests.support.harness import PROJECT, load_template

RESOURCES = load_template("monitoring.yaml")["Resources"]
METRIC_ALARMS = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"].endswith("::Alarm")}
COMPOSITES = {name: each["Properties"] for name, each in RESOURCES.items() if each["Type"].endswith("CompositeAlarm")}
ALARMS = METRIC_ALARMS | COMPOSITES
RUNBOOK = (PROJECT / "docs/runbook.md").read_text()
ENTRIES = re.findall(r"(?m)^###? (\w+)$", RUNBOOK.partition("\n# Procedures")[0])
SOURCE = "\n".join(path.read_text() for name in ("functions", "shared") for path in (PROJECT / name).rglob("*.py"))


def counted() -> set[str]:
    """The names of all metrics that the code counts, as regular expressions: `Reconciled.{…}` has a part in braces."""
    takes_a_metric = re.findall(r"def (\w+)\([^()]*\bmetric: str", SOURCE)
    calls = "|".join(["_?counts?", "_?gauge", "Metric", *takes_a_metric])
    names = re.findall(rf'\b(?:{calls})\((?:[\w.]+, )*\s*f?"([^"]+)"(?:.* else f?"([^"]+)")?', SOURCE)
    return {"Alarm", *(pattern_of(name) for each in names for name in each if name)}


def pattern_of(name: str) -> str:
    """A part in braces is known only at run time, except for the row's subject."""
    parts = re.split(r"(\{[^}]+\})", name.replace("{row.subject}", "(Payment|Refund)"))
    return "".join(r"\{\w+\}" if part.startswith("{") else part for part in parts)


def not_counted(names: set[str]) -> list[str]:
    """Of these metrics, those that no code counts."""
    patterns = counted()
    return [name for name in sorted(names) if not any(re.fullmatch(each, name) for each in patterns)]


def rule_of(composite: dict[str, Any]) -> str:
    """Its rule, with the logical ids of its children."""
    return str(composite["AlarmRule"]).removeprefix("Sub ")


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


def test_an_alarm_of_ours_watches_a_metric_that_the_code_emits() -> None:
    """With this namespace, name and dimensions: any other is another metric, and its alarm would never go off."""
    template = load_template()
    assert template["Resources"]["Monitoring"]["Properties"]["Parameters"]["StackName"] == "Ref AWS::StackName"
    variables = template["Globals"]["Function"]["Environment"]["Variables"]
    assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "Sub onecharge/${AWS::StackName}"
    request = stripe_request("GET", "https://api.stripe.com/v1/events", NO_ANSWER, 1, sent=None, received={})
    statuses = {NO_ANSWER, *(status_of(code) for code in range(200, 600))}
    for name, alarm in METRIC_ALARMS.items():
        if alarm["Namespace"].startswith("AWS/"):
            continue
        [watched] = alarm["Dimensions"]
        assert alarm["Namespace"] == "Sub onecharge/${StackName}", name
        match alarm["MetricName"], watched["Name"]:
            case "Alarm", "cause":
                assert Alarm(Cause(watched["Value"])).dimensions == ({"cause": name},)
            case "StripeSeconds", "status":
                assert (request, request.dimensions[1]) == ("StripeSeconds", {"status": NO_ANSWER})
                assert str(watched["Value"]) in statuses, name
            case "DeclinedShare", "of":
                assert 'Metric("DeclinedShare", {"of": "payments"}' in SOURCE
            case metric, "service":
                service = watched["Value"]
                assert service in services(), name
                code = "\n".join(path.read_text() for path in (PROJECT / "functions" / service).glob("*.py"))
                assert f'"{metric}"' in code, name
            case other:
                raise AssertionError(f"{name}: nothing emits {other}")


def services() -> set[str]:
    """The value of the dimension `service` in each function."""
    functions = [each for each in load_template()["Resources"].values() if each["Type"] == "AWS::Serverless::Function"]
    return {each["Properties"]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] for each in functions}


def test_an_alarm_on_a_schedule_has_its_period() -> None:
    """A shorter one would miss runs that are not due yet; a longer one would find a missing run late."""
    seconds = {"rate(5 minutes)": 300, "rate(15 minutes)": 900, "cron(5 * * * ? *)": 3600}
    for function, each in load_template()["Resources"].items():
        for event in each.get("Properties", {}).get("Events", {}).values():
            if event["Type"] == "Schedule":
                name = function.removesuffix("Function")
                periods = {METRIC_ALARMS[f"{name}{of}"]["Period"] for of in ("NotRun", "Errors")}
                assert periods == {seconds[event["Properties"]["Schedule"]]}, name


def test_the_rule_of_a_composite_alarm_can_be_read() -> None:
    """CloudWatch reads it at the deployment: children, joined by AND, OR and parentheses."""
    for name, composite in COMPOSITES.items():
        expression = re.sub(r"ALARM\(\$\{\w+\}\)", "x", rule_of(composite))
        assert set(re.findall(r"\w+", expression)) <= {"x", "AND", "OR", "NOT"}, name
        ast.parse(expression.lower(), mode="eval")


def test_every_metric_that_is_documented_is_counted() -> None:
    """A graph of a metric in docs/metrics.md that no code counts would stay empty."""
    rows = re.findall(r"(?m)^\| (`.+?) \|", (PROJECT / "docs/metrics.md").read_text())
    documented = {name for row in rows for name in re.findall(r"`(.+?)`", row)}
    assert documented
    assert not_counted(documented) == []


def test_what_is_counted_is_named_where_it_is_counted() -> None:
    """As a text, or as a parameter `metric` whose texts are found: else the tests above would not see it."""
    known = r'f?"|Alarm\(|Metric\(|metric\)|stripe_request\('
    assert re.findall(rf"\b(?:_?counts?|_?gauge)\((?!{known}).*", re.sub(r"def \w+\(", "", SOURCE)) == []


def test_an_alarm_is_named_after_its_stack_and_names_its_entry() -> None:
    """Two stacks in one account do not overwrite each other's alarms, and each alarm says where to read."""
    entries = {f"docs/runbook.md#{each.lower()}" for each in ENTRIES}
    for name, alarm in ALARMS.items():
        assert alarm["AlarmName"] == f"Sub ${{StackName}}-{name}"
        assert alarm["AlarmDescription"] in entries, name


def test_every_entry_is_of_an_alarm() -> None:
    """An entry that no alarm names would never be read."""
    named = {each["AlarmDescription"].rpartition("#")[2] for each in ALARMS.values()}
    assert {each.lower() for each in ENTRIES} == named


def test_every_alarm_is_named_in_the_runbook() -> None:
    """The alarms of a function are not: their entries are about any function."""
    of_functions = ("docs/runbook.md#functionerrors", "docs/runbook.md#functionthrottles")
    named = {name for name, each in ALARMS.items() if each["AlarmDescription"] not in of_functions}
    assert {name for name in named if not re.search(rf"\b{name}\b", RUNBOOK)} == set()


def test_only_composite_alarms_notify_and_each_alarm_is_in_exactly_one() -> None:
    """One cause wakes once; and none is left out."""
    assert [name for name, each in METRIC_ALARMS.items() if "AlarmActions" in each] == []
    assert all(each["AlarmActions"] == each["OKActions"] for each in COMPOSITES.values())
    children = [child for each in COMPOSITES.values() for child in children_of(each)]
    assert sorted(children) == sorted(METRIC_ALARMS)


def test_what_one_order_can_cause_for_a_day_mutes_no_other_cause() -> None:
    """A composite alarm that is in ALARM does not notify again for another child, and one that another rule excludes
    silences it: so these are alone, and no rule excludes them."""
    lasting = {"StripeAccount", "StripeInconclusive", "NeedsReview", "Overdue", "Held"}
    of_each = {name: set(children_of(each)) for name, each in COMPOSITES.items()}
    assert {name for name, children in of_each.items() if children & lasting and len(children) > 1} == set()
    excluded = {name for each in COMPOSITES.values() for name in re.findall(r"NOT ALARM\(\$\{(\w+)\}\)", rule_of(each))}
    assert excluded == {"StripeUnavailable"}
    assert of_each["StripeUnavailable"] & lasting == set()


def test_the_topic_is_as_urgent_as_the_runbook_says() -> None:
    """A page at any time, or a warning in working hours."""
    pages, _, warns = RUNBOOK.partition("\n# What warns\n")
    parts = {name: "PageTopic" if f"\n## {name}\n" in pages else "WarningTopic" for name in COMPOSITES}
    assert [name for name in COMPOSITES if f"\n## {name}\n" not in pages + warns] == []
    assert {name: each["AlarmActions"] for name, each in COMPOSITES.items()} == {
        name: [f"Ref {topic}"] for name, topic in parts.items()
    }


def test_what_missing_data_means_is_said() -> None:
    """Breaching where nothing reported is what the alarm is for; the default, missing, would keep the last state."""
    said = {name: each["TreatMissingData"] for name, each in METRIC_ALARMS.items()}
    assert said == {name: "breaching" if name.endswith("NotRun") else "notBreaching" for name in METRIC_ALARMS}


def test_cloudwatch_takes_the_range_that_is_evaluated() -> None:
    """At most a day for periods below an hour, else a week (Amazon CloudWatch API Reference, PutMetricAlarm)."""
    for name, alarm in METRIC_ALARMS.items():
        assert alarm["Period"] % 60 == 0, name
        assert alarm["Period"] * alarm["EvaluationPeriods"] <= (86400 if alarm["Period"] < 3600 else 7 * 86400), name
        assert alarm.get("DatapointsToAlarm", 1) <= alarm["EvaluationPeriods"], name


# ---------------------------------------------------------------- dashboard and saved queries


def widgets() -> list[dict[str, Any]]:
    """With a placeholder for what only a deployment knows."""
    text, _ = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Sub"]
    found: list[dict[str, Any]] = json.loads(re.sub(r"\$\{([\w:]+)\}", r"<\1>", text))["widgets"]
    return found


def metrics_of(widget: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The namespace and name of each metric that it shows; a dot is what the one before has (CloudWatch API Reference,
    "Dashboard body structure and syntax")."""
    before: list[str] = []
    for shown in widget["properties"].get("metrics", []):
        if isinstance(shown[0], dict):
            yield from re.findall(r'\{"(.+)",\w+\} MetricName="(\w+)"', shown[0]["expression"])
            continue
        whole = [*before[: 1 - len(shown)], *shown[1:]] if shown[0] == "..." else shown
        before = [old if new == "." else new for old, new in zip(before or whole, whole, strict=True)]
        yield before[0], before[1]


def test_the_dashboard_is_json_and_shows_every_composite_alarm() -> None:
    """CloudFormation does not parse it; CloudWatch refuses what is not JSON when it is deployed."""
    [alarms] = [each["properties"]["alarms"] for each in widgets() if each["type"] == "alarm"]
    assert alarms == [f"<Alarm>-{name}" for name in COMPOSITES]


def test_every_metric_of_the_dashboard_is_counted() -> None:
    """Those of our namespace; the others are AWS's, of the resources that the parameters name."""
    ours = {name for each in widgets() for namespace, name in metrics_of(each) if namespace == "<Ours>"}
    assert {"OrderPlaced", "Order.PAID", "MoneyCharged", "StripeSeconds", "EventsBehindSeconds"} <= ours
    assert not_counted(ours - {f"Order.{status}" for status in OrderStatus}) == []


def test_a_saved_query_asks_for_what_is_logged() -> None:
    """A message that a function no longer writes would make a query find nothing, when it is needed."""
    queries = [each["Properties"] for each in RESOURCES.values() if each["Type"].endswith("QueryDefinition")]
    for query in queries:
        for message in re.findall(r'message = "([^"]+)"', query["QueryString"]):
            assert f'"{message}"' in SOURCE, query["Name"]
    named = re.findall(r"`([a-z]+(?:-[a-z]+)+)`", RUNBOOK.partition("# What pages")[0])
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
