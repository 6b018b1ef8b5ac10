"""The operator's command: what is wrong with an order, what waits, and what fixes it.

__main__ ─► command_line ─► one module a command ─► output
                 └─► connection: the stack's resources by their logical ids, its Stripe account

`explain`, `pending`, `audit` and the console say the same of an order: facts (read) ─► findings. `release` and
`restore` decide by one complete look at Stripe.
"""
