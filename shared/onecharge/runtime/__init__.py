"""What the functions share around AWS: handlers, the SQS consumer, SNS topics, DynamoDB items, checkpoints, metrics."""
