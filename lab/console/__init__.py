"""The console: `make local` with all orders live, one order's timeline, and buttons that break the stack.

    lines.py        log events           ─► lines                     pure
    orders.py       lines, rows, ledger  ─► a row for each order      pure
    timeline.py     what `ops explain` tells ─► lanes             pure
    reading.py      reads CloudWatch Logs, the tables and Stripe
    breaks.py       the buttons: a method for each
    experiments.py  what to look for after each, and which rule it shows
    web.py          routes and pages
    serve.py        the stack of `python -m local`, with the console and the usual workers

Only breaks.py writes.
"""
