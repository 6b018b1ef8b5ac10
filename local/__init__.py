"""The embedded run: the whole system on one machine, without Docker and without an account."""

import signal
import sys

# argv[0] while `python -m` locates one of our programs. Its imports take up to a second, and nothing is started before
# them: Ctrl-C just ends it until run_in_terminal handles it.
if sys.argv[0] == "-m":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
