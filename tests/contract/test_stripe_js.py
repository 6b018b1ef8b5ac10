"""The page has the types that Stripe publishes (@stripe/stripe-js).

A call, an option or a result that Stripe.js does not have does not compile. JSDoc gives the types: nothing is built.
"""

from pathlib import Path

from stripe_standin.tests.typescript import TypeScript, require_node
from tests.support.harness import PROJECT

WEB = PROJECT / "web"


def test_the_page_compiles(tmp_path: Path) -> None:
    """Every module, with Stripe's objects typed as Stripe publishes them."""
    require_node()
    assert TypeScript(tmp_path).errors_of_scripts(*sorted(WEB.glob("*.js")), strict=False) == []
