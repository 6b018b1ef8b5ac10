"""publish_events: turns what the two tables' streams say into CloudEvents, and publishes them to SNS."""
