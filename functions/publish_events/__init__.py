"""publish_events: turns the records of the tables' streams into CloudEvents, and publishes them to SNS."""
