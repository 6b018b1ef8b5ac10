"""What `make deploy` does next: a table of what is there and what is left to do. No request is made."""

from typing import Any

import pytest

from ops.deploy_plan import Retained, Seen, Step, Wanted, causes, plan, to_delete
from ops.errors import Problem

TEST, LIVE, RESTRICTED = "sk_test_1", "sk_live_1", "rk_live_1"
ARNS = {"StripeSecretArn": "arn:of:key", "StripeWebhookSecretArn": "arn:of:webhook"}
ALL = list(Step)
LIVE_PROFILE = {"Profile": "live", "AlarmEmail": "you@example.org"}


@pytest.mark.parametrize(
    ("seen", "key", "expected"),
    [
        (Seen(), TEST, ALL[1:]),
        (Seen(stored_key=TEST), TEST, ALL[1:]),  # It was killed between the two secrets.
        (Seen(stored_key=TEST, has_webhook_secret=True), TEST, ALL[2:]),
        (Seen("REVIEW_IN_PROGRESS", stored_key=TEST, has_webhook_secret=True), TEST, ALL[2:]),
        (Seen("ROLLBACK_COMPLETE", ARNS), TEST, [Step.REMOVE_FAILED, *ALL[2:]]),
        (Seen("ROLLBACK_FAILED", ARNS), TEST, [Step.REMOVE_FAILED, *ALL[2:]]),
        (Seen("CREATE_COMPLETE", ARNS), TEST, ALL[2:]),
        (Seen("UPDATE_ROLLBACK_COMPLETE", ARNS), TEST, ALL[2:]),
        (Seen("UPDATE_COMPLETE", ARNS), "", [Step.DEPLOY]),  # CI: no key of Stripe's is there.
    ],
)
def test_each_state_has_its_steps(seen: Seen, key: str, expected: list[Step]) -> None:
    """Whatever was done before is not done twice; the rest is the same from every state."""
    assert plan(seen, Wanted("shop", deploying_key=key)) == expected


@pytest.mark.parametrize(
    ("seen", "wanted", "why"),
    [
        (Seen(), Wanted("shop"), "STRIPE_SECRET_KEY is missing"),
        (Seen(), Wanted("Shop", deploying_key=TEST), "small letters"),
        (Seen(), Wanted("s" * 25, deploying_key=TEST), "24"),
        (Seen(), Wanted("my-aws-shop", deploying_key=TEST), "not aws"),
        (Seen("UPDATE_IN_PROGRESS", ARNS), Wanted("shop"), "when that has ended"),
        (Seen("DELETE_FAILED", ARNS), Wanted("shop"), "make undeploy STACK=shop"),
        (Seen("UPDATE_ROLLBACK_FAILED", ARNS), Wanted("shop"), "continue-update-rollback --stack-name shop"),
        (Seen(), Wanted("shop", {"JwtIssuer": "https://a"}, TEST), "JwtAudience"),
        (Seen(), Wanted("shop", {"WebOrigin": "http://127.0.0.1:3000"}, TEST), "http://localhost"),
        (Seen(), Wanted("shop", {"Profile": "live"}, LIVE, RESTRICTED), "without AlarmEmail"),
        (Seen(), Wanted("shop", deploying_key=LIVE), "asks for live"),
        (Seen(), Wanted("shop", deploying_key="later"), "sk_test_"),
        (Seen(), Wanted("shop", LIVE_PROFILE, LIVE), "restricted key"),
        (Seen(), Wanted("shop", LIVE_PROFILE, TEST, RESTRICTED), "not of one mode"),
        (Seen("CREATE_COMPLETE", ARNS, TEST, True), Wanted("shop", LIVE_PROFILE, LIVE), "restricted key"),
        (Seen(stored_key=RESTRICTED, has_webhook_secret=True), Wanted("shop", deploying_key=LIVE), "asks for live"),
    ],
)
def test_what_a_person_has_to_mend_first(seen: Seen, wanted: Wanted, why: str) -> None:
    """It is refused before anything is changed, and no message holds a key."""
    with pytest.raises(Problem, match=why) as refused:
        plan(seen, wanted)
    assert not any(key in f"{refused.value} {wanted!r} {seen!r}" for key in (TEST, LIVE, RESTRICTED))


def test_live_is_asked_for() -> None:
    """It stores a restricted key; another key may make the endpoint. No order is placed with real money."""
    wanted = Wanted("shop", LIVE_PROFILE, LIVE, RESTRICTED)
    assert plan(Seen(), wanted) == [Step.STORE_SECRETS, Step.DEPLOY, Step.ENDPOINT]


def test_an_issuer_of_ones_own_needs_a_token_command_for_the_check() -> None:
    """The user pool gives tokens by itself."""
    own: Any = {"JwtIssuer": "https://a", "JwtAudience": "b"}
    assert Step.CHECK not in plan(Seen(), Wanted("shop", own, TEST))
    assert Step.CHECK in plan(Seen(), Wanted("shop", own, TEST, has_token_command=True))


def event(resource: str, status: str, reason: str = "", of: str = "stack-id") -> dict[str, str]:
    return {
        "StackId": "stack-id",
        "PhysicalResourceId": of if resource == "shop" else resource,
        "LogicalResourceId": resource,
        "ResourceStatus": status,
        "ResourceStatusReason": reason,
    }


def test_a_failure_is_explained_by_its_first_causes() -> None:
    """Of the last operation alone; what was canceled because of it is left out."""
    newest_first = [
        event("shop", "ROLLBACK_COMPLETE"),
        event("shop", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [OrdersApi]."),
        event("OrdersTable", "CREATE_FAILED", "Resource creation cancelled"),
        event("OrdersApi", "CREATE_FAILED", "Invalid issuer: https://a"),
        event("shop", "CREATE_IN_PROGRESS"),
        event("Queue", "CREATE_FAILED", "of an earlier attempt"),
    ]
    assert causes(newest_first) == ["OrdersApi: CREATE_FAILED: Invalid issuer: https://a"]


ORDERS, OLD = Retained("table", "shop-OrdersTable-1", True, True), Retained("table", "shop-OrdersTable-0", True, False)
BUCKET = Retained("bucket", "shop-failedrecordsbucket-1", False)


def test_nothing_that_is_protected_is_deleted() -> None:
    """Nor the bucket beside it: the stack was live."""
    free = Retained("table", "shop-OrdersTable-2", False)
    assert to_delete([ORDERS, OLD, BUCKET]) == []
    assert to_delete([free, BUCKET]) == [free, BUCKET]


def test_a_failed_first_deployment_leaves_nothing() -> None:
    """Its tables are protected already, and CloudFormation cannot delete them. What has data, or is an earlier stack's,
    stays.
    """
    used = Retained("table", "shop-PaymentsTable-1", True, False)
    assert to_delete([ORDERS, OLD, used], of_failed=[ORDERS.id, used.id]) == [ORDERS]
