"""Runs the stand-in until Ctrl-C or SIGTERM. Its first line of output is its address, in JSON."""

import argparse
import json
import signal
import sys
import threading

from stripe_standin.server import running_standin


def main() -> None:
    parser = argparse.ArgumentParser(prog="stripe-standin", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0, the default, is any free port")
    arguments = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        with running_standin(arguments.host, arguments.port) as standin:
            print(json.dumps({"stripe_api_base": standin.base_url}), flush=True)
            stopped.wait()
    except (OSError, OverflowError) as reason:
        sys.exit(f"{arguments.host}, port {arguments.port}: {reason}")


if __name__ == "__main__":
    main()
