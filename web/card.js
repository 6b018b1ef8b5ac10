// Stripe's part: the card form, the PaymentMethod, 3-D Secure. A card's number reaches neither this page nor our API.
//
// Only the server confirms: the page makes a PaymentMethod, and sends its id. What handleNextAction returns is ignored,
// since the order's status says what happened.

/** @typedef {import("@stripe/stripe-js").Stripe} Stripe */
/** @typedef {import("@stripe/stripe-js").StripeElements} StripeElements */

/** @type {Promise<Stripe> | undefined} */
let loading;

/**
 * Stripe.js, once it is loaded from its configured address. It must never be copied (Stripe documentation, "Including
 * Stripe.js"). Throws if it cannot be loaded; the next call tries again.
 * @returns {Promise<Stripe>}
 */
export function loadStripe(config) {
  loading ??= new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = config.stripe_js;
    script.onload = () => {
      try {
        done(window["Stripe"](config.publishable_key));
      } catch {
        fail(new Error("Stripe refuses the publishable_key of config.json: this shop is not set up yet."));
      }
    };
    const host = new URL(script.src).host;
    script.onerror = () => fail(new Error(`Stripe's card form could not be loaded. Allow ${host}, and reload.`));
    document.head.append(script);
  });
  return loading.catch((error) => {
    loading = undefined;
    throw error;
  });
}

/**
 * Show Stripe's card form for this amount; returns its collection, for `paymentMethodOf`.
 * @type {(stripe: Stripe, place: HTMLElement, order: { amount: number, currency: string }, failed: any) => StripeElements}
 */
export function mountCard(stripe, place, { amount, currency }, failed) {
  const elements = stripe.elements({
    mode: "payment",
    amount,
    currency: currency.toLowerCase(),
    allowedPaymentMethodTypes: ["card"],
    paymentMethodCreation: "manual",
    appearance: { theme: matchMedia("(prefers-color-scheme: dark)").matches ? "night" : "stripe" },
  });
  const card = elements.create("payment", { wallets: { applePay: "never", googlePay: "never" } });
  card.on("loaderror", ({ error }) => failed(new Error(`Stripe cannot show its card form: ${error.message}`)));
  card.mount(place);
  return elements;
}

/**
 * The id of a new PaymentMethod for the card in the form. Throws what the form says about the card.
 * @type {(stripe: Stripe, elements: StripeElements) => Promise<string>}
 */
export async function paymentMethodOf(stripe, elements) {
  const { error: incomplete } = await elements.submit();
  if (incomplete) throw new Error(incomplete.message);
  const { paymentMethod, error } = await stripe.createPaymentMethod({ elements });
  if (error) throw new Error(error.message);
  return paymentMethod.id;
}

/**
 * Show the bank's question (3-D Secure), until it is answered or closed. Stripe.js throws also if another tab has
 * answered it; the order's status says how it ended.
 * @type {(stripe: Stripe, clientSecret: string) => Promise<void>}
 */
export async function authenticate(stripe, clientSecret) {
  await stripe.handleNextAction({ clientSecret }).catch(() => null);
}
