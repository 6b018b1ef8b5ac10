"""Local runs and tests never see the AWS account of the shell."""

import os
from collections.abc import MutableMapping


def forget_aws_account(environment: MutableMapping[str, str]) -> None:
    """Remove every AWS_ variable, and make boto3 read no configuration file.

    A profile that does not exist would fail each boto3 client, and one that exists would be a real account.
    """
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    environment["AWS_CONFIG_FILE"] = environment["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
