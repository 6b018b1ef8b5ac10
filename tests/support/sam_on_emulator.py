"""`sam` for `make deploy` against the emulator: a file of this name, first on PATH, runs the real SAM CLI.

`build` is the local run's, with its cache. `deploy` gets what was built, without the resources that the emulator does
not know, with the given parameters as defaults (local/deployment.py says why), and with the emulator's own addresses in
the outputs; then the routes are created, as for the local run. All else is passed on as it came.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from local.deployment import Sam, with_defaults, without_unknown_types
from local.emulator import Emulator
from local.http_api_routes import create_routes
from local.stack import PROJECT

WORK_DIR, KEEPS_UNKNOWN, CALLS = "SAM_WORK_DIR", "SAM_KEEPS_UNKNOWN", "sam-calls.txt"
"""Two variables of the environment: with the second the nested stack cannot be created. A file: what sam was told."""


def install(folder: Path) -> Path:
    """Put the program into the folder; returns the folder, for PATH."""
    program = folder / "sam"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {__name__} "$@"\n')
    program.chmod(0o755)
    return folder


def main(words: list[str]) -> int:
    work_dir, real = Path(os.environ[WORK_DIR]), PROJECT / ".venv/opt/sam/bin/sam"
    with (work_dir / CALLS).open("a") as calls:
        calls.write(" ".join(words) + "\n")
    sam = Sam(real, Path(sys.executable), PROJECT, work_dir)
    if words[0] == "build":
        sam.build()
        if KEEPS_UNKNOWN not in os.environ:
            without_unknown_types(sam.build_dir)
        return 0
    given = dict(re.findall(r'^(\w+)="(.*)"$', "\n".join(words), re.MULTILINE))
    emulator = Emulator(os.environ["AWS_ENDPOINT_URL"], work_dir / "aws.log")
    template = sam.build_dir / "deployed.yaml"
    built = (sam.build_dir / "template.yaml").read_text()
    template.write_text(_with_addresses(with_defaults(built, given, emulator.endpoint_url), emulator))
    done = subprocess.run([str(real), "deploy", "--template-file", str(template), *words[1:]], check=False)
    if done.returncode == 0:
        [api] = emulator.client("apigatewayv2").get_apis()["Items"]
        if not emulator.client("apigatewayv2").get_routes(ApiId=api["ApiId"])["Items"]:
            create_routes(emulator, words[words.index("--stack-name") + 1])
    return done.returncode


def _with_addresses(template: str, emulator: Emulator) -> str:
    loaded = yaml.safe_load(template)
    api = f"{emulator.endpoint_url}/_aws/execute-api/${{OrdersApi}}/$default"
    addresses = {
        "ApiUrl": api,
        "StripeEventsUrl": f"{api}/stripe/events",
        "SignInUrl": f"{emulator.endpoint_url}/oauth2",
    }
    for name, address in addresses.items():
        loaded["Outputs"][name]["Value"] = {"Fn::Sub": address}
    return yaml.safe_dump(loaded, sort_keys=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
