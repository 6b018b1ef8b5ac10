"""publish_events: publishes the records of the tables' streams to SNS, as CloudEvents."""
