"""List prices of AWS in dollars, us-east-1, without free tiers, volume discounts and savings plans.

Looked up on 2026-11-22 in stored copies of the services' pricing pages, and of pages of 2026 that quote them. Each line
names the page; check it before you budget.
"""

AS_OF = "us-east-1, list prices of November 2026, without free tiers"

# AWS Lambda pricing.
LAMBDA_MILLION_REQUESTS = 0.20
LAMBDA_GB_SECOND = {"arm64": 0.0000133334, "x86_64": 0.0000166667}

# Amazon API Gateway pricing: the first tier of HTTP APIs (requests of up to 512 KB), and of REST APIs.
API_GATEWAY_MILLION_REQUESTS = {"HTTP API": 1.00, "REST API": 3.50}

# Amazon DynamoDB pricing for on-demand and for provisioned capacity.
DYNAMODB_MILLION_WRITES, DYNAMODB_MILLION_READS = 0.625, 0.125
DYNAMODB_WRITE_CAPACITY_HOUR = 0.00065

# Amazon SNS pricing, standard topics: 64 KB of a Publish or a PublishBatch are one request; deliveries to SQS are free.
SNS_MILLION_REQUESTS = 0.50

# Amazon SQS pricing, standard queues: 64 KB are one request, a batch of 10 messages is one, too.
SQS_MILLION_REQUESTS = 0.40

# Amazon CloudWatch pricing: ingested logs, of Lambda and vended, first tier; metrics, alarms, dashboards a month.
LOGS_GB = 0.50
METRIC_MONTH, ALARM_MONTH, COMPOSITE_ALARM_MONTH, DASHBOARD_MONTH = 0.30, 0.10, 0.50, 3.00
PUT_METRIC_DATA_MILLION = 10.00

# AWS X-Ray pricing: traces recorded.
XRAY_MILLION_TRACES = 5.00

# AWS Secrets Manager pricing and AWS KMS pricing.
SECRET_MONTH = 0.40
KMS_MILLION_REQUESTS = 3.00
