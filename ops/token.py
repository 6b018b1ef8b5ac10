"""Print an access token, by client credentials, for a machine or a test.

Without CLIENT_ID it is for the client "machines" of the stack's user pool, whose secret you may read
(cognito-idp:DescribeUserPoolClient). docs/guides/deploy.md has the variables for an issuer of your own. The issuer
chooses the subject (OAuth 2.0, RFC 6749, section 4.4): the customer is not looked at.
"""

import os
from argparse import ArgumentParser, Namespace
from functools import cache

import requests

from ops.connection import Stack
from ops.output import Problem, Report

STAFF = "onecharge/refund"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("customer", help="whose token is wanted")
    parser.add_argument("--scope", default="", help=f"such as {STAFF}, of the staff")


def run(stack: Stack, arguments: Namespace) -> Report:
    token = access_token(stack, arguments.scope)
    return Report({"access_token": token}, text=token)


@cache  # AWS charges for each.
def access_token(stack: Stack, scope: str) -> str:
    """A token with this scope; empty for a customer's. Raises Problem."""
    given = os.environ
    endpoint, secret = given.get("TOKEN_ENDPOINT", ""), given.get("CLIENT_SECRET", "")
    if not (client := given.get("CLIENT_ID", "")):
        client, pool = stack.value("MachinesClientId"), stack.value("UserPoolId")
        described = stack.client("cognito-idp").describe_user_pool_client(UserPoolId=pool, ClientId=client)
        secret = described["UserPoolClient"]["ClientSecret"]
        # Without a scope Cognito would give all that the client may have, the staff's too.
        endpoint, scope = endpoint or f"{stack.value('SignInUrl')}/token", scope or "onecharge/orders"
    data = {"grant_type": "client_credentials", "scope": scope or None, "audience": given.get("TOKEN_AUDIENCE")}
    try:
        return str(requests.post(endpoint, auth=(client, secret), data=data, timeout=30).json()["access_token"])
    except (requests.RequestException, KeyError) as error:
        # Neither the request nor the answer is shown: both may hold a secret.
        raise Problem(f"no access token from TOKEN_ENDPOINT {endpoint!r}: {type(error).__name__}") from None
