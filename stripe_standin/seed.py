"""A seed file: the state in which the stand-in starts. README.md, "A seed file"."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stripe_standin.admin import StandInAdmin

_PARTS = {"api_keys", "settings", "faults"}


def plant(admin: StandInAdmin, file: Path) -> None:
    """Apply the file by the admin API.

    Raises:
        ValueError: the file is not JSON, or has a part that does not exist.
        AdminError: the stand-in refused a part of it.
    """
    seed: Mapping[str, Any] = json.loads(file.read_text())
    if unknown := set(seed) - _PARTS:
        raise ValueError(f"{file} has unknown parts: {', '.join(sorted(unknown))}")
    admin.settings(**seed.get("settings", {}))
    for api_key, what in seed.get("api_keys", {}).items():
        admin.assign_api_key(api_key, what.get("account", "acct_standin"))
        if "permissions" in what:
            admin.restrict_api_key(api_key, what["permissions"])
    for fault in seed.get("faults", []):
        admin.add_fault(**fault)
