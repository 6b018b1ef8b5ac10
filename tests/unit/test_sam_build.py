"""What builds the functions and layers: which AWS services' data is shipped, and what a build that fails says."""

import ast
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.regions import EndpointResolver

from local.samples import logical_id_of
from sam_build.build import (
    AWS_SERVICES,
    KEPT,
    LEFT_OUT,
    REPLACEMENTS,
    hash_and_size,
    leave_out,
    package_of,
    record_again,
    shorten_data,
)
from testing.harness import PROJECT, load_template

INSTALLED = Path(pytest.__file__).parent.parent
FUNCTIONS = sorted(path.parent.name for path in PROJECT.glob("functions/*/app.py"))


def services_called() -> set[str]:
    """The first argument of each `aws_client(...)` in what is deployed."""
    return {
        str(ast.literal_eval(node.args[0]))
        for folder in ("functions", "shared")
        for path in (PROJECT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "aws_client"
    }


def test_the_data_of_each_service_that_is_called_is_shipped() -> None:
    """And of no other: `UnknownServiceError` would come with the first event, on AWS alone."""
    assert services_called() == set(AWS_SERVICES)


def test_no_client_is_made_in_another_way() -> None:
    """The test above would not see it."""
    paths = [path for folder in ("functions", "shared") for path in (PROJECT / folder).rglob("*.py")]
    makers = ("import boto3", "Session(", "get_session(", "create_client(")
    makes = {path.name for path in paths if any(maker in path.read_text() for maker in makers)}
    assert makes == {"aws.py"}


def test_only_what_is_named_is_left_out(tmp_path: Path) -> None:
    """Here: a service that nobody calls, type hints of Stripe's, a program; and their lines in RECORD."""
    left_out = ["bin/jp.py", "botocore/data/iot/2015/service-2.json.gz", "stripe/params/__init__.py"]
    kept = ["botocore/data/dynamodb/2012/service-2.json.gz", "botocore/data/endpoints.json", "stripe/__init__.py"]
    for name in (*left_out, *kept):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    record = tmp_path / "any-1.0.dist-info/RECORD"
    record.parent.mkdir()
    record.write_text("".join(f"{name},sha256=x,0\n" for name in (*left_out, *kept)) + "any-1.0.dist-info/RECORD,,\n")
    leave_out(tmp_path)
    record_again(tmp_path)
    assert [name for name in (*left_out, *kept) if (tmp_path / name).exists()] == kept
    empty = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0"
    assert record.read_text() == "".join(f"{name},{empty}\n" for name in kept) + "any-1.0.dist-info/RECORD,,\n"


def test_hashes_are_as_pip_records_them() -> None:
    """Of this very file of botocore's."""
    [record] = INSTALLED.glob("botocore-*.dist-info/RECORD")
    [line] = [line for line in record.read_text().splitlines() if line.startswith("botocore/session.py,")]
    assert line == f"botocore/session.py,{hash_and_size(INSTALLED / 'botocore/session.py')}"


@pytest.fixture(scope="module")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    """Reads what is shipped of botocore's data: made of the installed botocore's, the same version."""
    data = tmp_path_factory.mktemp("botocore") / "data"
    shutil.copytree(INSTALLED / "botocore/data", data, ignore=lambda folder, names: _of_other_services(folder, names))
    shorten_data(data)
    return Loader(extra_search_paths=[str(data)], include_default_search_paths=False)


def _of_other_services(folder: str, names: list[str]) -> list[str]:
    if Path(folder) != INSTALLED / "botocore/data":
        return []
    return [name for name in names if "." not in name and name not in AWS_SERVICES]


def test_each_service_is_reached_at_the_same_address_everywhere(shortened: Loader) -> None:
    """In every region of every partition: with what is shipped, as with all of botocore's endpoints."""
    whole, short = (EndpointResolver(loader.load_data("endpoints")) for loader in (Loader(), shortened))
    assert short.get_available_partitions() == whole.get_available_partitions()
    for service in AWS_SERVICES:
        for partition in whole.get_available_partitions():
            regions = whole.get_available_endpoints(service, partition, allow_non_regional=True)
            assert short.get_available_endpoints(service, partition, allow_non_regional=True) == regions
            for region in regions:
                assert short.construct_endpoint(service, region) == whole.construct_endpoint(service, region)


@pytest.mark.parametrize("service", AWS_SERVICES)
def test_a_description_loses_nothing_but_its_texts(shortened: Loader, service: str) -> None:
    """Every operation, every shape, every trait of a member: only what help() shows is gone."""
    whole, short = (loader.load_service_model(service, "service-2") for loader in (Loader(), shortened))
    removed = dict(_differences(whole, short))
    assert removed, "its texts"
    assert {path[-1] for path in removed} == {"documentation"}
    assert {type(text) for text in removed.values()} == {str}


@pytest.mark.parametrize("service", AWS_SERVICES)
def test_a_client_knows_its_own_parameters(shortened: Loader, service: str) -> None:
    """botocore reads them for its first request, with the text of each, and fails if there is none."""
    whole, short = (ServiceModel(loader.load_service_model(service, "service-2")) for loader in (Loader(), shortened))
    assert short.client_context_parameters == whole.client_context_parameters


def _differences(whole: Any, short: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What the second lacks, by its path; and what it has otherwise."""
    if isinstance(whole, Mapping) and isinstance(short, Mapping):
        assert set(short) <= set(whole)
        for name, each in whole.items():
            if name in short:
                yield from _differences(each, short[name], (*path, name))
            else:
                yield (*path, name), each
    elif isinstance(whole, list) and isinstance(short, list) and len(whole) == len(short):
        for position, (each, other) in enumerate(zip(whole, short, strict=True)):
            yield from _differences(each, other, (*path, str(position)))
    elif whole != short:
        yield path, whole


REPLACED = sorted(path.relative_to(REPLACEMENTS) for path in REPLACEMENTS.rglob("*.py"))


@pytest.mark.parametrize("module", REPLACED, ids=str)
def test_a_replacement_has_what_its_library_imports_of_it(module: Path) -> None:
    """Every name of every import statement, in what is shipped of the library; a release may import more of it."""
    has = set(runpy.run_path(str(REPLACEMENTS / module))) | {path.stem for path in _beside(module)}
    library = INSTALLED / module.parts[0]
    left_out = {path for pattern in LEFT_OUT for path in INSTALLED.glob(pattern)} - {INSTALLED / name for name in KEPT}
    shipped = [path for path in library.rglob("*.py") if not left_out & {path, *path.parents}]
    importing = [path for path in shipped if path.relative_to(INSTALLED) not in REPLACED]
    wanted = {name for path in importing for name in _names_imported_of(_name_of(module), path)}
    assert wanted <= has
    assert wanted or _name_of(module) == "botocore.docs"


def _beside(module: Path) -> list[Path]:
    return list((INSTALLED / module.parent).glob("*.py")) if module.name == "__init__.py" else []


def _name_of(module: Path) -> str:
    return ".".join(module.with_suffix("").parts).removesuffix(".__init__")


def _names_imported_of(module: str, path: Path) -> set[str]:
    package = path.relative_to(INSTALLED).parts[:-1]
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            if ".".join((*above, *((node.module,) if node.module else ()))) == module:
                names |= {name.name for name in node.names}
    return names


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    """A release of a library that renames it would ship it unseen."""
    gone = {"bin", "*.data"}
    """pip puts programs and data elsewhere in an environment."""
    assert {pattern for pattern in LEFT_OUT if not any(INSTALLED.glob(pattern))} <= gone
    assert {name for name in KEPT if not (INSTALLED / name).exists()} == set()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_is_packaged_under_its_own_name(function: str) -> None:
    """By its logical id; it is what its handler is imported by."""
    assert package_of(logical_id_of(function)) == function
    properties = load_template()["Resources"][logical_id_of(function)]["Properties"]
    assert properties["Handler"] == f"{function}.app.handler"


def test_a_package_that_cannot_be_installed_fails_the_build(tmp_path: Path) -> None:
    """Here: no file has the hash. The build ends with what pip says, then one line."""
    (tmp_path / "requirements.txt").write_text(f"stripe==16.1.0 --hash=sha256:{'0' * 64}\n")
    environment = {**os.environ, "ARTIFACTS_DIR": str(tmp_path / "built"), "PIP_NO_INDEX": "1"}
    command = [sys.executable, str(PROJECT / "sam_build/build.py"), "StripeLayer", "--architecture", "arm64"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "stripe" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("pip could not install requirements.txt")
