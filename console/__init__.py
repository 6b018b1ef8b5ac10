"""The console: all orders live, one order's timeline, and on the local stack buttons that break things.

    lines.py        log events        ─► lines                 pure
    tally.py        lines, ledger     ─► a row for each order  pure
    timeline.py     story, lines      ─► moments in lanes      pure
    why.py          lines             ─► why it was charged once   pure
    reading.py      CloudWatch Logs, tables and Stripe, read with the operator's credentials
    breaks.py       what breaks the local stack, a function for each
    experiments.py  what to look for after each, and which rule it shows
    staff.py        a refund, a cancellation
    guard.py        who may ask: this machine, this page
    web.py          routes, pages, server-sent events
    serve.py        on 127.0.0.1; ops/console.py is the command

Only breaks.py and staff.py write. A deployed stack's console does not have the former, and the latter only with --yes.
"""
