"""place_due_orders: on a schedule, makes one order of each document that has fallen due."""
