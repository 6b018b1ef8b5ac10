"""An access token for the local run: `python -m local.token cus_1`; for its staff `… staff --scope onecharge/refund`.

The stack runs in another terminal (`make local`). The token is valid for an hour.
"""

import argparse
import json
import sys
from pathlib import Path

from local.issuer import Issuer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m local.token", description=__doc__)
    parser.add_argument("customer", help="whose token it is: the claim sub")
    parser.add_argument("--scope", default="", help="what it allows, as onecharge/refund; separated by spaces")
    parser.add_argument("--stack", type=Path, default=Path(".local/stack.json"))
    options = parser.parse_args()
    try:
        stack = json.loads(options.stack.read_text())
        issuer = Issuer(stack["jwt_issuer"], stack["jwt_audience"], Path(stack["jwt_key_file"]))
        print(issuer.token(options.customer, options.scope))
    except OSError as error:
        print(f"{error.filename}: {error.strerror}; `make local` has to run, in this folder", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
