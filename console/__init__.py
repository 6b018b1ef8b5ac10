"""The console of `make local`: all orders live, one order's timeline, and buttons that break things.

    lines.py        log events        ─► lines                 pure
    tally.py        lines, ledger     ─► a row for each order  pure
    timeline.py     story, lines      ─► moments in lanes      pure
    why.py          lines             ─► why it was charged once   pure
    reading.py      CloudWatch Logs, tables and Stripe, read with the operator's credentials
    breaks.py       what breaks the stack, a function for each; and a refund
    experiments.py  what to look for after each, and which rule it shows
    web.py          routes, pages, server-sent events
    serve.py        on 127.0.0.1

Only breaks.py writes.
"""
