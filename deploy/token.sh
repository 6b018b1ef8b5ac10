#!/bin/sh
# token.sh CUSTOMER [--scope SCOPE]: prints an access token. `.venv/bin/python -m ops token --help` says of which issuer.
cd "$(dirname "$0")/.." && exec .venv/bin/python -m ops --stack "$STACK" token "$@"
