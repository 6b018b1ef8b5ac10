"""`python -m stripe_standin`: prints its address as one line of JSON, and runs until Ctrl-C or SIGTERM."""

import argparse
import json
import signal
import threading

from stripe_standin.server import running_standin


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m stripe_standin", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 means any free port")
    parser.add_argument("--seed", type=int, default=0, help="of the generated ids")
    arguments = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with running_standin(arguments.host, arguments.port, seed=arguments.seed) as standin:
        print(json.dumps({"stripe_api_base": standin.base_url}), flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()
