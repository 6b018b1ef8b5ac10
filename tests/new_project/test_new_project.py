"""The files of a new project, from this one's: nothing of a part that is not chosen, and nothing of this one's name."""

import ast
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from new_project.__main__ import read_project
from new_project.parts import FILES, ORIGINAL, PARTS, conditions_of
from new_project.project import new_project

PROJECT = Path(__file__).resolve().parents[2]
FILES_HERE = read_project(PROJECT)
SELECTIONS = [set(), *({part} for part in PARTS), {"refunds", "webhook"}, set(PARTS)]


WORDS = {
    "refunds": r"refund",
    "webhook": r"webhook",
    "due": r"(?<!over)due_|DueD",
    "fifo": r"fifo",
    "authentication": r"client_secret|ClientSecret",
    "cancel": r"cancel_requested\b|CancelRequested|cancel_order|CANCELING",
}
"""How what a part adds is called."""

PAYMENTS = "shared/onecharge/payments"
STAYS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "refunds": {
        "what is refunded in Stripe's Dashboard shows on the order, like a dispute": (
            "functions/orders_api/responses.py",
            "functions/publish_events/mapping.py",
            "functions/reconcile/reconcile.py",
            "functions/update_order/orders.py",
            "shared/onecharge/contract/events.py",
            "shared/onecharge/orders/schema.py",
            f"{PAYMENTS}/event_handler.py",
            f"{PAYMENTS}/stripe_events.py",
            f"{PAYMENTS}/stripe_permissions.py",
            f"{PAYMENTS}/charges/event_handler.py",
            f"{PAYMENTS}/charges/gateway.py",
            f"{PAYMENTS}/charges/protocol.py",
            f"{PAYMENTS}/charges/row.py",
            f"{PAYMENTS}/charges/store.py",
        ),
        "a canceled order that was charged is refunded, by a person if there is no such part": (
            f"{PAYMENTS}/charges/discrepancy.py",
            f"{PAYMENTS}/charges/reconciler.py",
        ),
        "the skeleton of a worker is the one that refunds have, too": (
            f"{PAYMENTS}/delivery.py",
            f"{PAYMENTS}/leases.py",
            f"{PAYMENTS}/worker.py",
        ),
    },
    "cancel": {
        "the protocol cancels: a worker, the reconciler and an event can, whoever asks": (
            "template.yaml",
            "functions/charge_order/app.py",
            "functions/charge_order/cancel.py",
            "shared/onecharge/contract/cancellations.py",
            "shared/onecharge/contract/questions.py",
            f"{PAYMENTS}/charges/cancel.py",
        ),
    },
    "authentication": {
        "a PaymentIntent has one, and it must not be logged": (
            f"{PAYMENTS}/charges/gateway.py",
            f"{PAYMENTS}/charges/protocol.py",
        ),
    },
    "webhook": {
        "the same rules, whether a webhook delivers an event or a scheduled run lists it": (
            f"{PAYMENTS}/event_handler.py",
            f"{PAYMENTS}/stripe_events.py",
            f"{PAYMENTS}/charges/discrepancy.py",
            f"{PAYMENTS}/charges/reconciler.py",
            f"{PAYMENTS}/charges/store.py",
        ),
    },
}
"""Why which files of the core use the word of a part."""


@pytest.mark.parametrize(("condition", "glob"), [(condition, glob) for condition, globs in FILES for glob in globs])
def test_every_entry_of_the_table_matches_a_file(condition: str, glob: str) -> None:
    """One that matches none is of a file that was moved, and has become part of the core unseen."""
    assert any(fnmatchcase(path, glob) for path in FILES_HERE), condition


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda each: " ".join(sorted(each)) or "core")
def test_every_marker_is_well_formed_and_none_stays(selection: set[str]) -> None:
    """In every selection the files can be cut, and are still there as files that have a use."""
    made = new_project(FILES_HERE, selection, "shop")
    assert {"README.md", "template.yaml", "shared/shop/payments/charges/protocol.py"} <= made.keys()
    marked = [path for path, text in made.items() if re.search(r"(# |<!-- )(=+ )?(end )?optional\b", text)]
    assert marked == []


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda each: " ".join(sorted(each)) or "core")
def test_what_is_left_of_each_module_is_python(selection: set[str]) -> None:
    """A marker at the end of a line that the formatter has broken in two would cut half a statement."""
    for path, text in new_project(FILES_HERE, selection, "shop").items():
        if path.endswith(".py"):
            ast.parse(text, path)


def test_all_parts_are_all_of_this_project() -> None:
    """But for what only this project has."""
    made = new_project(FILES_HERE, set(PARTS), "onecharge")
    own = {path for path in FILES_HERE if ORIGINAL in conditions_of(path)}
    assert FILES_HERE.keys() - made.keys() == own - {"README.md", "CHANGELOG.md"}


@pytest.mark.parametrize("part", PARTS)
def test_the_core_does_not_mention_a_part(part: str) -> None:
    """Whoever has only the core does not read of the rest; what stays has a reason."""
    made = new_project(FILES_HERE, set(), "onecharge")
    code = {path for path in made if path.startswith(("functions/", "shared/", "template.yaml", "monitoring.yaml"))}
    word = re.compile(WORDS[part], re.IGNORECASE)
    # The linter drops the imports that are left over.
    texts = {path: path + re.sub(r"(?m)^(from|import) .*$", "", made[path]) for path in code}
    mentions = {path for path, text in texts.items() if word.search(text)}
    assert mentions == {path for paths in STAYS.get(part, {}).values() for path in paths}


def test_the_name_is_replaced_everywhere() -> None:
    """In paths and texts, however it is spelled; but for the license, and where the new project comes from."""
    made = new_project(FILES_HERE, set(PARTS), "shop")
    named = {path for path, text in made.items() if "onecharge" in (path + text).lower()}
    assert named <= {"README.md", "LICENSE", "NOTICE"}
