"""`python -m console`: the same as `python -m ops console`."""

import sys

from ops.__main__ import run

if __name__ == "__main__":
    sys.exit(run(["console", *sys.argv[1:]]))
