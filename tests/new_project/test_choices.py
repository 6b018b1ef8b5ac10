"""What `make new` refuses, each with one line that says what to write instead."""

from pathlib import Path

import pytest

from new_project.choices import Choices, Refused, choices
from new_project.parts import PARTS


def chosen(folder: str, parts: str = "", name: str = "", *, project: Path) -> Choices:
    return choices(folder, parts, name, project=project, taken={"boto3", "local", "orders_api"})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "one charge (é)"
    path.mkdir()
    return path


def test_the_parts_are_named_with_spaces_or_commas_between_them(project: Path) -> None:
    """None is the bare core; "all" is every part."""
    beside = str(project.parent / "shop")
    assert chosen(beside, "refunds, webhook", project=project).parts == {"refunds", "webhook"}
    assert chosen(beside, " ", project=project).parts == frozenset()
    assert chosen(beside, "all", project=project).parts == PARTS.keys()


def test_without_a_name_the_folders_is_taken(project: Path) -> None:
    """What of it a Python package and a CloudFormation stack can both have."""
    assert chosen(str(project.parent / "Shop-Payments 2"), project=project).name == "shoppayments2"


def test_an_empty_folder_can_be_written_to(project: Path) -> None:
    """Its path may have spaces and other letters."""
    folder = project.parent / "mein Lädchen"
    folder.mkdir()
    assert chosen(str(folder), name="laden", project=project).folder == folder


@pytest.mark.parametrize(
    ("folder", "parts", "name", "reason"),
    [
        ("", "", "", "DIR is missing: make new DIR="),
        ("{beside}", "refund", "", "no part of this project: refund. Parts: refunds cancel"),
        ("{beside}", "", "shop-payments", "NAME=shop-payments is no name"),
        ("{beside}", "", "Shop", "NAME=Shop is no name"),
        ("{beside}", "", "s", "NAME=s is no name"),
        ("{beside}", "", "s" * 20, "is no name"),
        ("{beside}", "", "class", "NAME=class is taken"),
        ("{beside}", "", "json", "NAME=json is taken"),
        ("{beside}", "", "boto3", "NAME=boto3 is taken"),
        ("{beside}", "", "local", "NAME=local is taken"),
        ("{project}", "", "shop", "inside this project"),
        ("{project}/shop", "", "shop", "inside this project"),
        ("{full}", "", "shop", "not an empty folder"),
        ("{full}/file", "", "shop", "not an empty folder"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(
    project: Path, folder: str, parts: str, name: str, reason: str
) -> None:
    """And the line says what can be asked for."""
    full = project.parent / "full"
    full.mkdir()
    (full / "file").touch()
    path = folder.format(beside=project.parent / "shop", project=project, full=full)
    with pytest.raises(Refused) as refused:
        chosen(path, parts, name, project=project)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
