"""Stripe's balance transactions against our rows, to the cent.

booked    a movement of money, as Stripe has booked it; the requests that read them
rows      our rows, by order, and those that were finalized within a time
compare   one booked movement, one row: the same, or not, and why. Pure
auditor   all of a time: page by page, then what only our rows have
"""
