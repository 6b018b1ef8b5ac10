"""The stub of Stripe.js has the types that Stripe publishes (@stripe/stripe-js)."""

from pathlib import Path

from stripe_standin.tests.typescript import TypeScript

STUB = Path(__file__).parents[1] / "browser"


def test_the_stub_compiles_strictly(typescript: TypeScript) -> None:
    """A call, an option or a result that Stripe.js does not have does not compile."""
    assert typescript.errors_of_scripts(*sorted(STUB.glob("*.js")), strict=True) == []
