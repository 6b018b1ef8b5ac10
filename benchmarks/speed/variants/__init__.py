"""The designs that are measured beside ours: each module is a whole Lambda function, as its documentation writes it.

Each reads TABLE, STRIPE_API_KEY and STRIPE_API_BASE, and boto3's own variables, as AWS_ENDPOINT_URL.
"""
