"""Who sends a request: the claims of its access token.

API Gateway has verified the token (template.yaml, OrdersApi) and hands its claims over as text. Nothing in the body,
the query or a header says who the customer is.
"""

import re
from dataclasses import dataclass
from http import HTTPStatus

from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2

from onecharge.contract.events import CUSTOMER_ID_PATTERN
from onecharge.runtime.problems import Problem


class Unauthenticated(Exception):
    """The request has no verified claims: its route has no authorizer, or something else invoked the function."""


@dataclass(frozen=True)
class Caller:
    """A customer, or somebody of the staff: what they may do is what the token's scopes say."""

    subject: str
    """The claim `sub`, which is the customer's id."""
    scopes: frozenset[str]

    @classmethod
    def of(cls, event: APIGatewayProxyEventV2) -> "Caller":
        """Raises Unauthenticated, and Problem if no customer can have this subject."""
        claims = event.request_context.authorizer.jwt_claim
        if not claims:
            raise Unauthenticated
        # API Gateway takes a token whose `aud` or `client_id` is the audience: of Cognito an ID token, too, whose `aud`
        # is the client's id. Cognito's tokens say which they are.
        if claims.get("token_use", "access") != "access":
            raise _forbidden("The token is no access token: its claim token_use says so.")
        subject = claims.get("sub")
        if not isinstance(subject, str) or not re.fullmatch(CUSTOMER_ID_PATTERN, subject):
            raise _forbidden("The access token names no customer: its claim sub is 1 to 255 visible ASCII characters.")
        return cls(subject, frozenset(scope for name in ("scope", "scp") for scope in _words(claims.get(name))))

    def require_scope(self, scope: str) -> None:
        """Raises Problem if the token has not this scope."""
        if scope not in self.scopes:
            raise _forbidden("The access token does not have the scope that this request needs.")


def _words(claim: object) -> list[str]:
    """The words of a claim; API Gateway makes a list `[one two]`."""
    return str(claim or "").removeprefix("[").removesuffix("]").split()


def _forbidden(detail: str) -> Problem:
    return Problem(HTTPStatus.FORBIDDEN, "forbidden", detail)
