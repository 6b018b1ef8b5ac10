"""The operator's command: what is wrong with an order, what waits, and what fixes it.

__main__ ─► command_line ─► one module a command ─► output
                 └─► connection: the stack's resources by their logical ids, its Stripe account

`explain`, `pending`, `audit` and the console tell facts ─► findings; `release` and `restore` look at all of Stripe.
"""
