"""The console: all orders live, one order's timeline, and on the local stack buttons that break things.

    lines.py      log events        ─► lines                 pure
    tally.py      lines, ledger     ─► a row for each order  pure
    timeline.py   story, lines      ─► moments in lanes      pure
    reading.py    CloudWatch Logs, tables and Stripe, read with the operator's credentials
    breaks.py     what breaks the local stack, a function for each
    guard.py      who may ask: this machine, this page
    web.py        routes, pages, server-sent events

It reads and never writes, but for breaks.py, which a deployed stack's console does not have.
"""
