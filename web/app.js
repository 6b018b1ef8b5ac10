// The shop's page: what is shown, and what a click does. The address (#/orders/ord_…) says which screen.

import { NoAnswer, Refused, once, request, seconds } from "./api.js";
import { authenticate, loadStripe, mountCard } from "./card.js";
import { forget, isOpen, openOrder, remember, sendOnce } from "./remembered.js";
import { accessToken, customerId, finishSignIn, signIn, signOut } from "./session.js";
import { button, el, money, on, show, when } from "./view.js";

const ADDRESS = /^https?:\/\/[^/]+(\/.*[^/])?$/;
const ADDRESSES = { api: ADDRESS, stripe_js: ADDRESS, authorize_url: ADDRESS, token_url: ADDRESS };
const CONFIG = { ...ADDRESSES, currency: /^[A-Z]{3}$/, publishable_key: /^pk_/, client_id: /./, scope: /./ };

const WORDS = {
  PENDING: "We have your order, and charge your card once. You can wait here, or look again under “Your orders”.",
  PAID: "Paid. Thank you!",
  PAYMENT_DECLINED: "Your card was declined. Nothing was charged.",
  REQUIRES_ACTION: "Your bank asks you to confirm this payment. Nothing is charged before you do.",
  CANCELING: "The order is being canceled. If your card was charged a moment before, the order stays paid.",
  CANCELED: "The order is canceled. Nothing was charged.",
  NEEDS_REVIEW: "We are checking this payment, and will contact you. Please do not order again.",
};
const PRICE_CHANGED = "The price has changed since you saw it. Nothing was ordered: this is what it costs now.";
const REPEATED = "You ordered exactly this a moment ago, perhaps on another device. Nothing was ordered now.";
const LOST = "was sent, but no answer came back. Send it again: you are charged once, whether it had arrived or not.";

let config;
let shown = 0; // Grows with each screen: what belongs to an earlier one stops.

start();

async function start() {
  addEventListener("failed", (event) => failed(/** @type {CustomEvent} */ (event).detail));
  on(window, "hashchange", () => route());
  // The browser may bring back a page that was left, with its card form, after another customer has signed in.
  on(window, "pageshow", ({ persisted }) => persisted && location.reload());
  try {
    // Without locks and storage the page could place an order twice, so it places none.
    const isCurrent = navigator.locks && AbortSignal.timeout && [].toReversed;
    if (!isCurrent) throw new Error("This browser is too old for this page, or the page's address is not https.");
    if (!navigator.cookieEnabled) throw new Error("This browser stores nothing for this site. Allow it, and reload.");
    config = await configuration();
    // On every screen: Stripe sees fraud by how a customer comes to pay (Stripe documentation, "Including Stripe.js").
    loadStripe(config).catch(() => null);
    const said = await finishSignIn(config).catch((error) => error.message);
    await route({ said });
  } catch (error) {
    failed(error);
  }
}

async function configuration() {
  const answer = await fetch("config.json").catch(() => null);
  const read = await answer?.json().catch(() => null);
  const wrong = Object.keys(CONFIG).filter((name) => !CONFIG[name].test(read?.[name] ?? ""));
  if (wrong.length) throw new Error(`config.json has no valid ${wrong.join(", ")}: this shop is not set up yet.`);
  return read;
}

async function route({ said = "" } = {}) {
  const screen = ++shown;
  notice(said);
  const nav = accessToken()
    ? [el("a", { href: "#/orders" }, "Your orders"), button(`Sign out ${customerId()}`, leave, "quiet")]
    : [];
  document.getElementById("nav").replaceChildren(...nav);
  if (!accessToken()) return show(el("h1", {}, "Welcome"), button("Sign in to order", () => signIn(config)));
  const [, orders, orderId] = location.hash.slice(1).split("/");
  if (orders && orderId) await orderScreen(orderId, screen);
  else if (orders) await ordersScreen(screen);
  else await basketScreen(screen);
}

/** Sign out, also of the issuer where it has a session: else whoever signs in next in this browser is this customer. */
function leave() {
  signOut();
  return config.sign_out_url ? location.assign(config.sign_out_url) : route();
}

// ---- the basket

async function basketScreen(screen) {
  const { currency } = config;
  const { prices } = await request(config, "GET", "/prices");
  const offered = prices.filter((price) => price.currency === currency);
  if (!offered.length) throw new Error(`Nothing is sold in ${currency}: this shop is not set up yet.`);
  const kept = `shop:basket:${customerId()}`;
  const quantities = new Map(JSON.parse(localStorage.getItem(kept) ?? "[]"));
  const total = el("p", { class: "total" });
  const askForCard = cardForm(currency);
  let place = el("div", {});
  const rows = offered.map(({ sku, unit_amount }) => {
    const input = el("input", { type: "number", min: 0, max: 99, value: quantities.get(sku) ?? 0, id: sku });
    on(input, "input", async () => {
      quantities.set(sku, Math.max(0, Math.min(99, Math.trunc(input.valueAsNumber) || 0)));
      localStorage.setItem(kept, JSON.stringify([...quantities]));
      await refresh();
    });
    return el("tr", {}, el("td", {}, el("label", { for: sku }, sku)),
      el("td", { class: "amount" }, money(unit_amount, currency)), el("td", { class: "amount" }, input));
  });
  if (screen !== shown) return;
  show(el("h1", {}, "Your basket"), el("table", {}, ...rows), total, place);
  await refresh();

  async function refresh() {
    const chosen = offered.filter(({ sku }) => quantities.get(sku) > 0);
    const items = chosen.map(({ sku }) => ({ sku, quantity: quantities.get(sku) }));
    const amount = chosen.reduce((sum, { sku, unit_amount }) => sum + unit_amount * quantities.get(sku), 0);
    total.textContent = `Total ${money(amount, currency)}`;
    const next = el("div", {}); // For this basket alone: what an earlier one still shows goes to a place that is gone.
    place.replaceWith(next);
    place = next;
    await payForm(place, items, amount, { askForCard, refresh });
  }
}

/** What can be done with this basket. Its key is made before the button is there; an open order is settled first. */
async function payForm(place, items, amount, { askForCard, refresh }) {
  const customer = customerId();
  const { currency } = config;
  const open = openOrder(customer);
  if (open) return place.append(unanswered(open, () => send(open)));
  if (!amount) return place.append("Choose something.");
  // Without the amount: at another price it is the same order, until an answer says that it was placed.
  const order = await remember(customer, "order", { items, currency });
  if (order.answer) {
    return place.append(
      el("p", {}, "You have ordered exactly this before."),
      el("a", { class: "button", href: `#/orders/${order.answer.order_id}` }, "Show this order"),
      button("Order the same once more", () => forget(order).then(refresh), "quiet"),
    );
  }
  const label = `Pay ${money(amount, currency)}`;
  const agreed = order.refused?.type === "amount-differs" && order.bodies.at(-1).payment_method;
  if (agreed) return place.append(button(label, () => send(order, () => agreed)));
  if (order.refused?.type === "probable-duplicate") {
    return place.append(
      el("p", {}, REPEATED),
      el("a", { class: "button", href: "#/orders" }, "Show your orders"),
      button("Order it once more", () => send(order, () => order.bodies.at(-1).payment_method, { again: true }), "quiet"),
    );
  }
  await askForCard(place, amount, label, (paymentMethod) => send(order, paymentMethod));

  async function send(record, paymentMethod = null, more = {}) {
    const body = { currency, items, amount, ...more };
    const make = paymentMethod && (async () => ({ ...body, payment_method: await paymentMethod() }));
    const post = (body, key) => request(config, "POST", "/orders", { body, key });
    try {
      const { order_id } = await sendOnce(record, make, post, () => openOrder(customer));
      location.hash = `#/orders/${order_id}`;
    } catch (error) {
      if (error.type === "amount-differs") return route({ said: PRICE_CHANGED });
      if (error.type === "probable-duplicate") return refresh();
      if (openOrder(customer)) await refresh();
      throw error;
    }
  }
}

/** The answer to a request got lost: only the same request again says what became of it. */
function unanswered({ bodies }, send) {
  const { items, amount, currency } = bodies.at(-1);
  const lines = items?.map(({ sku, quantity }) => `${quantity} × ${sku}`).join(", ");
  const what = items ? `Your order of ${lines} for ${money(amount, currency)}` : "Your card";
  const again = button(items ? "Find this order" : "Send it again", send);
  return el("section", { id: "unanswered" }, el("p", {}, `${what} ${LOST}`), again);
}

/**
 * Stripe's card form with a button, as a function that shows it after an empty place. It stays mounted when the place
 * is replaced, and what is in a place hides it (style.css): so Stripe keeps the card that the customer has typed.
 */
function cardForm(currency) {
  const card = el("div", { id: "card" });
  const submit = el("button", { type: "submit" });
  const form = el("form", { id: "card-form" }, card, submit);
  let mounted;
  let work;
  on(form, "submit", () => work());

  return async (place, amount, label, send) => {
    const stripe = await loadStripe(config);
    if (!place.isConnected) return;
    submit.textContent = label;
    work = () => send(async () => {
      const paymentMethod = await mounted.paymentMethod();
      if (!place.isConnected) throw new Error("The basket changed before your card was read: nothing was ordered.");
      return paymentMethod;
    });
    if (mounted) return mounted.update(amount);
    place.after(form);
    mounted = mountCard(stripe, card, { amount, currency }, failed);
  };
}

// ---- an order

async function orderScreen(orderId, screen) {
  let pause = 0.5; // Seconds.
  let drawn;
  while (screen === shown) {
    try {
      const order = await once(config, "GET", `/orders/${encodeURIComponent(orderId)}`);
      if (screen !== shown) return;
      const isOver = !["PENDING", "REQUIRES_ACTION", "CANCELING"].includes(order.status);
      const isNew = JSON.stringify(order) !== drawn;
      if (isOver || (isNew && drawn !== undefined)) notice("");
      if (isNew) drawOrder(order);
      if (isOver) return;
      drawn = JSON.stringify(order);
    } catch (error) {
      if (screen !== shown) return;
      if (!(error instanceof NoAnswer)) throw error;
      notice(`${error.message} Your order is safe. Trying again …`);
      drawn = null; // The next answer is drawn, and clears the notice.
    }
    await seconds(pause);
    pause = Math.min(pause * 1.5, 5);
  }
}

/** Orders whose payment the bank has confirmed since this page was loaded. */
const confirmed = new Set();

function drawOrder(order) {
  const { order_id, status, amount, currency, amount_refunded } = order;
  const actions = el("section", { id: "actions" });
  const cancel = () => request(config, "POST", `/orders/${order_id}/cancel`).then(() => route());
  const isBooked = status === "REQUIRES_ACTION" && confirmed.has(order_id);
  const canCancel = ["PENDING", "REQUIRES_ACTION", "PAYMENT_DECLINED"].includes(status) && !isBooked;
  const words = isBooked ? "Your bank has confirmed this payment. We are booking it." : WORDS[status];
  show(
    el("h1", {}, `Your order of ${money(amount, currency)}`),
    el("p", { id: "status", class: `status ${status}`, "data-status": status }, words ?? status),
    el("p", { id: "decline" }, (status === "PAYMENT_DECLINED" && order.attempts.at(-1).message) || ""),
    el("p", {}, amount_refunded ? `${money(amount_refunded, currency)} of it is refunded.` : ""),
    actions,
    canCancel ? button("Cancel this order", cancel, "quiet") : "",
    el("p", { class: "small" }, `Ordered ${when(order.placed_at)}. Number ${order_id}`),
  );
  if (status === "PAYMENT_DECLINED") anotherCard(actions, order).catch(failed);
  if (status === "REQUIRES_ACTION" && !isBooked) actions.append(button("Confirm with your bank", () => confirmWithBank(order_id)));
}

async function confirmWithBank(orderId) {
  const payment = () => request(config, "GET", `/orders/${orderId}/payment`);
  const { client_secret } = await payment();
  if (client_secret) await authenticate(await loadStripe(config), client_secret);
  // The order may hear of it later.
  if (["processing", "succeeded"].includes((await payment()).stripe_status)) confirmed.add(orderId);
  await route({ said: "We are waiting for your bank's answer." });
}

/** After a decline: another card, under a key of its own, for the same order. */
async function anotherCard(actions, order) {
  const attempt = await remember(customerId(), "attempt", { order_id: order.order_id, after: order.attempts.length });
  if (isOpen(attempt)) return actions.replaceChildren(unanswered(attempt, () => send()));
  const place = el("div", {});
  actions.replaceChildren(place);
  const label = `Pay ${money(order.amount, order.currency)} with this card`;
  await cardForm(order.currency)(place, order.amount, label, send);

  async function send(paymentMethod = null) {
    const make = paymentMethod && (async () => ({ payment_method: await paymentMethod() }));
    const post = (body, key) => request(config, "POST", `/orders/${order.order_id}/payments`, { body, key });
    try {
      await sendOnce(attempt, make, post);
    } catch (error) {
      if (error instanceof NoAnswer) await anotherCard(actions, order);
      if (error.type !== "not-declined") throw error; // Else another tab was first: the order says what it did.
    }
    await route();
  }
}

async function ordersScreen(screen, cursor = "") {
  const query = cursor && `?cursor=${encodeURIComponent(cursor)}`;
  const { orders, next_cursor } = await request(config, "GET", `/orders${query}`);
  const rows = orders.map(({ order_id, placed_at, amount, currency, status }) =>
    el("tr", {}, el("td", {}, el("a", { href: `#/orders/${order_id}` }, when(placed_at))),
      el("td", { class: "amount" }, money(amount, currency)),
      el("td", { class: status }, status.toLowerCase().replace("_", " "))),
  );
  if (screen !== shown) return;
  show(el("h1", {}, "Your orders"), rows.length ? el("table", {}, ...rows) : el("p", {}, "None yet."),
    next_cursor ? button("Older orders", () => ordersScreen(screen, next_cursor)) : "");
}

// ---- what goes wrong

function notice(text) {
  document.getElementById("notice").textContent = text;
}

/** Say in words what went wrong, and what to do. Trying again is always safe. */
function failed(error) {
  if (error instanceof Refused && error.status === 401) {
    signOut();
    return route({ said: "Your sign-in has expired. Sign in again: your order is kept." });
  }
  const isNoOrder = error.type === "not-found" && location.hash.startsWith("#/orders/");
  if (isNoOrder) return show(el("h1", {}, "There is no such order of yours."));
  notice(error instanceof NoAnswer ? `${error.message} Nothing is lost: try again.` : error.message);
}
