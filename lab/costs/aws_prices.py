"""List prices of AWS in dollars, us-east-1, first tier, without free tiers, volume discounts and savings plans.

Looked up on 2026-11-22 in stored copies of public pages. Each price names the page that has the figure, and its date if
it shows one. AWS's own pricing pages fill in their figures by script, so that few stored copies have them: most pages
here quote AWS. None of these prices is from memory. Check them on AWS's pages before you budget.
"""

AS_OF = "us-east-1, list prices as found in November 2026, without free tiers"

# https://wring.co/blog/aws-lambda-pricing-guide (2026-03-08).
LAMBDA_MILLION_REQUESTS = 0.20
LAMBDA_GB_SECOND = {"arm64": 0.0000133334, "x86_64": 0.0000166667}

# The example of https://aws.amazon.com/lambda/pricing/, as read on 2026-09-20 (api-evangelist/aws-lambda on GitHub).
LAMBDA_MILLION_DURABLE_OPERATIONS = 8.00

# AWS, "Best Practices for Designing Amazon API Gateway Private APIs and Private Integration", table 4, "Cost
# optimization" (docs.aws.amazon.com/whitepapers). An HTTP API's request is one for each 512 KB.
API_GATEWAY_MILLION_REQUESTS = {"HTTP API": 1.00, "REST API": 3.50}

# On demand: https://airbyte.com/data-engineering-resources/dynamodb-pricing (2025-07-21), the prices since AWS halved
# them in November 2024.
DYNAMODB_MILLION_WRITES, DYNAMODB_MILLION_READS = 0.625, 0.125

# https://www.factualminds.com/blog/amazon-sns-pricing-publishes-fanout-protocols/ (2026-06-13), standard topics. That
# a PublishBatch of ten costs as much as one Publish: Amazon SNS Developer Guide, "Amazon SNS message batching" ("by a
# factor of up to 10"). That deliveries to SQS are free: several projects on GitHub that quote AWS.
SNS_MILLION_REQUESTS = 0.50

# https://cloudburn.io/blog/amazon-sqs-pricing (2026-03-14), standard queues: 64 KB are one request, a batch of ten
# messages is one, too.
SQS_MILLION_REQUESTS = 0.40

# Logs and dashboards: https://www.factualminds.com/blog/amazon-cloudwatch-pricing-metrics-logs-alarms-dashboards/
# (2026-06-13). Metrics: https://signoz.io/guides/cloudwatch-pricing (2026-02-15). Alarms, composite ones too:
# https://c3x.dev/resources/aws/aws_cloudwatch_metric_alarm.
LOGS_GB = 0.50
METRIC_MONTH, ALARM_MONTH, COMPOSITE_ALARM_MONTH, DASHBOARD_MONTH = 0.30, 0.10, 0.50, 3.00

# https://aws.amazon.com/xray/pricing/: traces recorded.
XRAY_MILLION_TRACES = 5.00

# https://hivebook.wiki/wiki/aws-secrets-manager-rotated-secrets-dynamic-db-credentials-kms, and
# https://cloudburn.io/blog/aws-kms-pricing (2026-03-14) with https://www.wring.co/blog/aws-kms-pricing-guide: 0.03 for
# 10,000 requests.
SECRET_MONTH = 0.40

# https://www.rhythmictech.com/blog/the-aws-cognito-m2m-bill-has-come-due-what-you-need-to-know/ (2025-05).
MACHINES_CLIENT_MONTH = 6.00
KMS_MILLION_REQUESTS = 3.00
