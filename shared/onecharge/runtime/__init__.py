"""What every function stands on: the SQS consumer, SNS topics, DynamoDB items, HTTP problems, metrics."""
