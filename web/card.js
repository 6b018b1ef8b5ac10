// Stripe's part: Stripe.js, the card form, the PaymentMethod. A card's number reaches neither this page nor our API.
// Only the server confirms: the page makes a PaymentMethod, and sends its id.

import * as words from "./words.js";

/** @typedef {import("@stripe/stripe-js").Stripe} Stripe */

let loading;

/**
 * Stripe.js, once it is loaded from its configured address. It must never be copied (Stripe documentation, "Including
 * Stripe.js"). Throws if it cannot be loaded.
 * @returns {Promise<Stripe>}
 */
export function loadStripe({ stripe_js, publishable_key }) {
  loading ??= new Promise((done, fail) => {
    const script = Object.assign(document.createElement("script"), { src: stripe_js, onload: done });
    script.onerror = () => fail(new Error(words.noStripe(stripe_js)));
    document.head.append(script);
  }).then(() => window["Stripe"](publishable_key, { locale: words.LANGUAGE }));
  loading.catch(() => (loading = undefined)); // The next call tries again.
  return loading;
}

/**
 * Show Stripe's card form for this amount. `update` changes the amount, and keeps what is typed; `paymentMethod`
 * returns the id of a new PaymentMethod for the card, and throws Stripe's words for the customer about a wrong one.
 * @param {Stripe} stripe @param {HTMLElement} place @param {{ amount: number, currency: string }} order
 */
export function mountCard(stripe, place, { amount, currency }, failed) {
  const colorPrimary = getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  const elements = stripe.elements({
    mode: "payment",
    amount,
    currency: currency.toLowerCase(),
    allowedPaymentMethodTypes: ["card"],
    paymentMethodCreation: "manual",
    appearance: {
      theme: matchMedia("(prefers-color-scheme: dark)").matches ? "night" : "stripe",
      variables: { colorPrimary },
    },
  });
  const card = elements.create("payment", { wallets: { applePay: "never", googlePay: "never", link: "never" } });
  card.on("loaderror", ({ error }) => failed(new Error(error.message)));
  card.mount(place);
  return { update: (amount) => elements.update({ amount }), paymentMethod };

  async function paymentMethod() {
    const { error: incomplete } = await elements.submit();
    if (incomplete) throw new Error(incomplete.message);
    const { paymentMethod, error } = await stripe.createPaymentMethod({ elements });
    if (error) throw new Error(error.message);
    return paymentMethod.id;
  }
}
