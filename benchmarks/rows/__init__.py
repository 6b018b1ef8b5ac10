"""What scheduled jobs cost for each order they work on, as the tables grow."""
