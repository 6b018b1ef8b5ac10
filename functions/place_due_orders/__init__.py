"""place_due_orders: on a schedule, places one order for each document that is due."""
