// A stub of Stripe.js: as much as the page of this project uses. What it takes and returns is checked against the
// published types (@stripe/stripe-js), as the page is. Card numbers stay in Stripe's own frame.
// Source: Stripe.js reference; Stripe documentation, "Finalize payments on the server".
// @ts-check

/** @typedef {import("@stripe/stripe-js").Stripe} RealStripe */
/** @typedef {import("@stripe/stripe-js").StripeElements} RealElements */

(() => {
  const script = /** @type {HTMLScriptElement} */ (document.currentScript);
  const origin = new URL(script.src).origin;

  class IntegrationError extends Error {
    name = "IntegrationError";
  }

  /** Ask a frame of Stripe's, and wait for its answer. */
  function ask(/** @type {HTMLIFrameElement} */ frame, /** @type {any} */ question) {
    return new Promise((answer) => {
      const channel = new MessageChannel();
      channel.port1.onmessage = (message) => answer(message.data);
      frame.contentWindow?.postMessage(question, origin, [channel.port2]);
    });
  }

  /** @returns {Promise<HTMLIFrameElement>} */
  function frameOf(/** @type {string} */ path, /** @type {Element} */ place, /** @type {string} */ title, theme = "stripe") {
    const frame = document.createElement("iframe");
    Object.assign(frame, { src: `${origin}/${path}`, title });
    Object.assign(frame.style, { display: "block", border: "0", width: "100%", height: "12rem", colorScheme: theme === "night" ? "dark" : "light" });
    return new Promise((loaded) => {
      frame.onload = () => loaded(frame);
      place.append(frame);
    });
  }

  function checkAmount(/** @type {string} */ what, /** @type {any} */ amount) {
    if (!Number.isInteger(amount) || amount < 1) throw new IntegrationError(`${what}: amount must be a positive integer.`);
  }

  const IS_OURS = Symbol("elements");

  /** @returns {Pick<RealElements, "create" | "update" | "submit">} */
  function elementsOf(/** @type {any} */ options) {
    checkAmount("elements()", options.amount);
    if (!/^[a-z]{3}$/.test(options.currency)) throw new IntegrationError("elements(): currency must be a lowercase ISO code.");
    /** @type {Promise<HTMLIFrameElement> | undefined} */
    let frame;
    const made = {
      [IS_OURS]: { options, submitted: false, frame: () => frame },
      create(/** @type {string} */ type) {
        if (type !== "payment") throw new IntegrationError(`create(): ${type} is not an element of this stub.`);
        return {
          on() {},
          mount(/** @type {any} */ place) {
            const element = typeof place === "string" ? document.querySelector(place) : place;
            if (!element) throw new IntegrationError("mount(): the element does not exist.");
            frame = frameOf("card.html", element, "Secure payment input frame", options.appearance?.theme);
          },
        };
      },
      /** The mounted form stays as it is; it has to be submitted again. */
      async update(/** @type {any} */ changed) {
        checkAmount("update()", changed.amount);
        Object.assign(options, changed);
        this[IS_OURS].submitted = false;
      },
      async submit() {
        if (!frame) throw new IntegrationError("submit(): the payment element is not mounted.");
        const answer = await ask(await frame, { ask: "validate" });
        this[IS_OURS].submitted = !answer.error;
        return answer.error ? { error: answer.error } : { selectedPaymentMethod: "card" };
      },
    };
    return /** @type {any} */ (made);
  }

  // @ts-expect-error: a part of what the original has.
  window.Stripe = function Stripe(/** @type {string} */ key) {
    if (!/^pk_(test|live)_./.test(key ?? "")) throw new IntegrationError("Please call Stripe() with your publishable key.");
    /** @type {Pick<RealStripe, "elements" | "createPaymentMethod" | "handleNextAction">} */
    const stripe = /** @type {any} */ ({
      elements: elementsOf,

      async createPaymentMethod(/** @type {any} */ given) {
        const own = given.elements[IS_OURS];
        if (!own?.submitted) throw new IntegrationError("createPaymentMethod(): call elements.submit() first.");
        if (own.options.paymentMethodCreation !== "manual") throw new IntegrationError("createPaymentMethod(): paymentMethodCreation must be manual.");
        return ask(await own.frame(), { ask: "create", key });
      },

      async handleNextAction(/** @type {any} */ given) {
        const dialog = document.createElement("dialog");
        const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "night" : "stripe";
        const look = { border: "1px solid #8884", borderRadius: "0.75rem", boxShadow: "0 1rem 4rem #0006" };
        Object.assign(dialog.style, { width: "min(24rem, 92vw)", padding: "0", overflow: "hidden", ...look });
        document.body.append(dialog);
        try {
          const frame = await frameOf("challenge.html", dialog, "3D Secure", theme);
          const intent = await ask(frame, { ask: "retrieve", key, clientSecret: given.clientSecret });
          if (intent.error) return { error: intent.error };
          if (intent.paymentIntent.status !== "requires_action") {
            throw new IntegrationError(`handleNextAction: The PaymentIntent supplied is not in the requires_action state: ${intent.paymentIntent.status}.`);
          }
          dialog.showModal();
          return await ask(frame, { ask: "challenge", key, clientSecret: given.clientSecret });
        } finally {
          dialog.remove();
        }
      },
    });
    return stripe;
  };
})();
