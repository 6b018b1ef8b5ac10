"""The operator's command: what is wrong with an order, what waits, and what fixes it.

__main__ ─► command_line ─► one module a command ─► output
                 └─► connection: the stack's resources by their logical ids, its Stripe account

`explain`, `pending` and the console tell the same story of an order: facts (read) ─► diagnosis ─► story.
"""
