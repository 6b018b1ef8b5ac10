"""The designs that are measured beside ours: each module is a whole Lambda function, as its documentation writes it.

Each reads TABLE, STRIPE_API_KEY and STRIPE_API_BASE. naive.py also has the function that places an order for all.
"""
