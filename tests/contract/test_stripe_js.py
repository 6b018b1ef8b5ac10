"""The page has the types that Stripe publishes (@stripe/stripe-js).

A call, an option or a result that Stripe.js does not have does not compile. JSDoc gives the types: nothing is built.
"""

from pathlib import Path

import pytest

from stripe_standin.tests.typescript import TypeScript, require_node
from tests.support.harness import PROJECT

WEB = PROJECT / "web"


@pytest.fixture
def typescript(tmp_path: Path) -> TypeScript:
    require_node()
    return TypeScript(tmp_path)


def test_the_page_compiles(typescript: TypeScript) -> None:
    """Every module, with Stripe's objects typed as Stripe publishes them."""
    assert typescript.errors_of_scripts(*sorted(WEB.glob("*.js")), strict=False) == []


def test_what_stripe_does_not_have_does_not_compile(typescript: TypeScript, tmp_path: Path) -> None:
    """One call, option or result of card.js after the other."""
    changes = [
        ("stripe.createPaymentMethod({ elements })", "stripe.createPaymentMethods({ elements })"),
        ("stripe.createPaymentMethod({ elements })", "stripe.createPaymentMethod({ element: elements })"),
        ("return paymentMethod.id", "return paymentMethod.identifier"),
        ('paymentMethodCreation: "manual"', 'paymentMethodCreation: "by hand"'),
        ('mode: "payment"', 'mode: "pay"'),
        ("amount,\n", "amount: currency,\n"),
        ("elements.update({ amount })", "elements.update({ total: amount })"),
        ('card.on("loaderror"', 'card.on("broken"'),
        ('applePay: "never"', "applePay: false"),
    ]
    source = (WEB / "card.js").read_text()
    for number, (right, wrong) in enumerate(changes):
        assert right in source
        (tmp_path / f"card{number}.js").write_text(source.replace(right, wrong))
    errors = typescript.errors_of_scripts(*tmp_path.glob("*.js"), strict=False)
    wrong_files = {error.partition("(")[0] for error in errors if error.startswith("card")}
    assert wrong_files == {f"card{number}.js" for number in range(len(changes))}
