"""What is common to the functions behind the HTTP API: any event is answered, and the document says what the code does.

The events are those of `sam local generate-event` (AWS SAM CLI, "sam local generate-event"), shortened.
"""

import json
from typing import Any

import pytest

from get_payment.payment import payment_api
from tests.shop.endpoint import Endpoint
from tests.support import openapi
from tests.support.harness import LambdaContext, Log, Sample, load_template
from tests.support.orders_api import Client

_SNS = {"Type": "Notification", "MessageId": "95df01b4", "Subject": "TestInvoke", "Message": "Hello", "Timestamp": "1"}
NOT_HTTP: dict[str, dict[str, Any]] = {
    "sqs receive-message": {"Records": [{"messageId": "19dd0b57", "body": "Test message.", "eventSource": "aws:sqs"}]},
    "sns notification": {"Records": [{"EventVersion": "1.0", "EventSource": "aws:sns", "Sns": _SNS}]},
    "dynamodb update": {
        "Records": [
            {
                "eventID": "1",
                "eventName": "INSERT",
                "dynamodb": {"Keys": {"Id": {"N": "101"}}},
                "eventSource": "aws:dynamodb",
            }
        ]
    },
    "cloudwatch scheduled-event": {"detail-type": "Scheduled Event", "source": "aws.events", "detail": {}},
    "apigateway aws-proxy": {
        "resource": "/{proxy+}",
        "path": "/path/to/resource",
        "httpMethod": "POST",
        "requestContext": {"resourcePath": "/{proxy+}", "httpMethod": "POST", "requestId": "c6af9ac6"},
    },
    "alb request": {"requestContext": {"elb": {"targetGroupArn": "arn"}}, "httpMethod": "GET", "path": "/", "body": ""},
    "no event": {},
    "no context": {"requestContext": None},
}
HTTP_API_PROXY: dict[str, Any] = {
    "version": "2.0",
    "routeKey": "$default",
    "rawPath": "/path/to/resource",
    "rawQueryString": "parameter1=value1&parameter1=value2&parameter2=value",
    "cookies": ["cookie1", "cookie2"],
    "headers": {"Header1": "value1", "Header2": "value1,value2"},
    "queryStringParameters": {"parameter1": "value1,value2", "parameter2": "value"},
    "requestContext": {
        "accountId": "123456789012",
        "apiId": "api-id",
        "authentication": {"clientCert": {"clientCertPem": "CERT_CONTENT"}},
        "authorizer": {"jwt": {"claims": {"claim1": "value1"}, "scopes": ["scope1"]}},
        "http": {"method": "POST", "path": "/path/to/resource", "protocol": "HTTP/1.1", "sourceIp": "192.168.0.1/32"},
        "requestId": "id",
        "routeKey": "$default",
        "stage": "$default",
    },
    "body": "eyJ0ZXN0IjoiYm9keSJ9",
    "pathParameters": {"parameter1": "value1"},
    "isBase64Encoded": True,
}


@pytest.mark.parametrize("event", [HTTP_API_PROXY, *NOT_HTTP.values()], ids=["apigateway http-api-proxy", *NOT_HTTP])
def test_any_event_of_aws_is_answered(client: Client, log: Log, sample: Sample, event: dict[str, Any]) -> None:
    """With a problem, by each of the functions, and never with an exception; nothing is read, and no alarm is raised.
    An unknown path is 404, on the webhook, too: nothing of Stripe's is lost."""
    counted: list[str] = []
    endpoint = Endpoint(log, sample=sample)
    get_payment = payment_api(endpoint.store, lambda: endpoint.payment_intents, log.logger, counted.append)
    for api in (client.resolver, get_payment, endpoint.route.resolver):
        answer = api.resolve(event, LambdaContext())
        is_http = event is HTTP_API_PROXY
        problem, kind = json.loads(answer["body"]), "not-found" if is_http else "not-http"
        assert (answer["statusCode"], problem["type"]) == (404 if is_http else 400, f"urn:onecharge:problem:{kind}")
        assert problem["correlation_id"] == answer["headers"]["X-Correlation-Id"]
        assert answer["headers"]["X-Correlation-Id"] == ("id" if is_http else LambdaContext().aws_request_id)
    assert not [each for each in (*counted, *client.counted, *endpoint.counted) if not each.startswith("Refused")]
    assert (client.requested, endpoint.io.asked) == ([], [])


def test_the_committed_document_is_what_the_code_says() -> None:
    """After a change of a route, a model or a problem, `make openapi` shows in the diff what clients will see."""
    assert openapi.DOCUMENT.read_text() == openapi.text(), "run `make openapi`"


def test_the_routes_that_ask_for_much_have_a_limit_of_their_own() -> None:
    """Of requests per second: a request for the client secret asks Stripe, whose limit charges need, and so does a
    refund; a list reads up to 50 orders, of the 1,000 units per second that the table may read."""
    settings = load_template()["Resources"]["OrdersApi"]["Properties"]["RouteSettings"]
    for route in ("GET /orders/{order_id}/payment", "POST /orders/{order_id}/refunds", "GET /orders"):
        assert settings[route]["ThrottlingRateLimit"] <= 5
        assert settings[route]["ThrottlingBurstLimit"] <= 20
