"""Whatever AWS account the shell has: a local run and the tests know nothing of it."""

import os
from collections.abc import MutableMapping


def forget_aws_account(environment: MutableMapping[str, str]) -> None:
    """Remove all that names an account, a profile, a region or an endpoint, and read no configuration file.

    A profile that does not exist would fail each client of boto3, and one that exists would be somebody's account.
    """
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    environment["AWS_CONFIG_FILE"] = environment["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
