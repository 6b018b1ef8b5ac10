// The shop's page: what is shown, and what a click does. The address (#/orders/ord_…) says which screen.

import { NoAnswer, Refused, once, request, seconds } from "./api.js";
import { loadStripe, mountCard } from "./card.js";
import { basketOf, forget, isOpen, openOrder, putInBasket, remember, sendOnce } from "./remembered.js";
import { accessToken, customerId, finishSignIn, signIn, signOut } from "./session.js";
import { button, el, money, on, show, when } from "./view.js";
import * as words from "./words.js";

let config;
let shown = 0; // Grows with each screen: what belongs to an earlier one stops.

start().catch(failed);

async function start() {
  document.documentElement.lang = words.LANGUAGE;
  document.getElementById("brand").textContent = words.SHOP;
  addEventListener("failed", (event) => failed(/** @type {CustomEvent} */ (event).detail));
  on(window, "hashchange", () => route());
  // The browser may bring back a page that was left, with its card form, after another customer has signed in.
  on(window, "pageshow", ({ persisted }) => persisted && location.reload());
  config = await fileBeside("config.json");
  if (!config) throw new Error(words.NO_CONFIGURATION);
  // On every screen: Stripe sees fraud by how a customer comes to pay (Stripe documentation, "Including Stripe.js").
  loadStripe(config).catch(() => null);
  const said = await finishSignIn(config).catch((error) => error.message);
  await route({ said });
}

async function fileBeside(name) {
  const answer = await fetch(name).catch(() => null);
  return answer?.ok ? answer.json().catch(() => null) : null;
}

async function route({ said = "" } = {}) {
  const screen = ++shown;
  notice(said);
  scrollTo(0, 0);
  const nav = accessToken()
    ? [el("a", { href: "#/orders" }, words.ORDERS), button(words.signOut(customerId()), leave, "quiet")]
    : [];
  if (config.console) nav.push(el("a", { href: config.console }, words.CONSOLE));
  document.getElementById("nav").replaceChildren(...nav);
  if (!accessToken()) return welcomeScreen(screen);
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

// ---- before the sign-in

/** What is sold, at the prices of a file beside this page: the API shows its own to customers alone. */
async function welcomeScreen(screen) {
  const prices = Object.entries((await fileBeside("prices.json")) ?? {});
  const offered = prices.map(([sku, { [config.currency]: price }]) => (price ? productCard(sku, price) : ""));
  if (screen !== shown) return;
  show(words.SLOGAN,
    el("p", {}, words.INTRODUCTION),
    button(words.SIGN_IN, () => signIn(config)),
    el("ul", { class: "products" }, ...offered));
}

function productCard(sku, unitAmount, field = null) {
  const { name, about, picture } = words.product(sku);
  return el("li", {}, el("img", { src: picture, alt: "" }), el("div", {},
    field ? el("label", { class: "name", for: field.id }, name) : el("span", { class: "name" }, name),
    el("p", { class: "small" }, about),
    el("p", { class: "price" }, money(unitAmount, config.currency)),
    field ?? ""));
}

/** The cards that Stripe's test mode takes. A shop with live keys shows none. */
function testCards() {
  const isTest = config.publishable_key.startsWith("pk_test_");
  return isTest ? el("p", { id: "test-cards", class: "panel" }, words.TEST_CARDS) : "";
}

// ---- the basket

async function basketScreen(screen) {
  const { currency } = config;
  const { prices } = await request(config, "GET", "/prices");
  const offered = prices.filter((price) => price.currency === currency);
  const customer = customerId();
  const fields = offered.map(({ sku }) => quantityField(sku, async (quantity) => {
    putInBasket(customer, sku, quantity);
    await refresh();
  }));
  const cards = offered.map(({ sku, unit_amount }, at) => productCard(sku, unit_amount, fields[at]));
  const askForCard = cardForm(currency);
  const bill = el("div", {});
  let place = el("div", {});
  if (screen !== shown) return;
  show(words.SLOGAN, el("div", { class: "columns" },
    el("ul", { class: "products" }, ...cards),
    el("div", {}, el("section", { class: "panel" }, el("h2", {}, words.BASKET), bill, place), testCards())));
  await refresh();

  async function refresh() {
    const basket = basketOf(customer);
    const quantities = offered.map((each) => ({ ...each, quantity: basket.get(each.sku) ?? 0 }));
    quantities.forEach(({ quantity }, at) => (fields[at].value = quantity));
    const chosen = quantities.filter(({ quantity }) => quantity > 0);
    const items = chosen.map(({ sku, quantity }) => ({ sku, quantity }));
    const amount = chosen.reduce((sum, { quantity, unit_amount }) => sum + unit_amount * quantity, 0);
    bill.replaceChildren(...(amount ? billOf(chosen, amount, currency) : []));
    // For this basket alone: what an earlier one still shows goes to a place that is gone.
    const former = place;
    place = el("div", {});
    former.replaceWith(place);
    await payForm(place, items, amount, { askForCard, refresh });
  }
}

function billOf(items, amount, currency) {
  const lines = items.map(({ sku, quantity, unit_amount }) => {
    const { name, picture } = words.product(sku);
    return el("li", {}, el("img", { src: picture, alt: "" }), el("span", {}, words.line(quantity, name)),
      el("span", { class: "amount" }, money(unit_amount * quantity, currency)));
  });
  return [el("ul", { class: "lines" }, ...lines), el("p", { class: "total" }, words.total(money(amount, currency)))];
}

/** 0 to 20 of a product, for customers. The API takes 10,000. */
function quantityField(sku, changed) {
  const options = [...Array(21).keys()].map((count) => el("option", { value: count }, String(count)));
  const field = el("select", { id: `quantity-${sku}` }, ...options);
  return on(field, "change", () => changed(Number(field.value)));
}

/** What can be done with this basket. Its key is made before the button is there; an open order is settled first. */
async function payForm(place, items, amount, { askForCard, refresh }) {
  const customer = customerId();
  const { currency } = config;
  const open = openOrder(customer);
  if (open) return place.append(unanswered(open, () => send(open)));
  if (!amount) return place.append(words.CHOOSE);
  // Without the amount: at another price it is the same order, until an answer says that it was placed.
  const order = await remember(customer, "order", { items, currency });
  if (order.answer) {
    return place.append(
      el("p", {}, words.ORDERED_BEFORE),
      el("a", { class: "button", href: `#/orders/${order.answer.order_id}` }, words.SHOW_ORDER),
      button(words.SAME_AGAIN, () => forget(order).then(refresh), "quiet"),
    );
  }
  await askForCard(place, amount, (paymentMethod) => send(order, paymentMethod));

  async function send(record, paymentMethod = null) {
    try {
      const { order_id } = await post(record, "/orders", { currency, items, amount }, paymentMethod, check);
      // Another customer may have signed in meanwhile.
      if (customerId() === customer) location.hash = `#/orders/${order_id}`;
    } catch (error) {
      if (error.type === "amount-differs") return route({ said: words.PRICE_CHANGED });
      if (error.type === "idempotency-key-reused") return forget(record).then(() => route({ said: words.TRY_ARRIVED }));
      await refresh(); // Another tab may have changed the basket, or the order is open now.
      throw error;
    }
  }

  /** Only what is still in the basket, and was seen at this amount, is ordered: another tab may have ordered it. */
  function check() {
    if (openOrder(customer)) throw new Error(words.OTHER_TAB);
    const basket = basketOf(customer);
    const isInBasket = items.every(({ sku, quantity }) => (basket.get(sku) ?? 0) >= quantity);
    if (!isInBasket || !place.isConnected) throw new Error(words.BASKET_CHANGED);
  }
}

/** Send the record's open request again, or this body with a payment method of the card that is typed. */
function post(record, path, body, paymentMethod, check) {
  const make = paymentMethod && (async () => ({ ...body, payment_method: await paymentMethod() }));
  return sendOnce(record, make, (sent, key) => request(config, "POST", path, { body: sent, key }), check);
}

/** The answer to a request got lost: only the same request again says what became of it. */
function unanswered({ body }, send) {
  const { amount, currency } = body;
  const said = words.lost(amount && money(amount, currency));
  return el("section", { id: "unanswered" }, el("p", {}, said), button(words.SEND_AGAIN, send));
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
  on(form, "submit", () => {
    notice("");
    return work();
  });

  return async (place, amount, send) => {
    const stripe = await loadStripe(config);
    if (!place.isConnected) return;
    submit.textContent = words.pay(money(amount, currency));
    work = () => send(async () => {
      const paymentMethod = await mounted.paymentMethod();
      if (!place.isConnected) throw new Error(words.BASKET_CHANGED);
      return paymentMethod;
    });
    if (mounted) return mounted.update(amount);
    place.after(form);
    mounted = mountCard(stripe, card, { amount, currency }, failed);
  };
}

// ---- an order

async function orderScreen(orderId, screen) {
  let drawn;
  let isAsked = false;
  for (let pause = 0.5; screen === shown; pause = Math.min(pause * 1.5, 5)) {
    try {
      const order = await once(config, "GET", `/orders/${encodeURIComponent(orderId)}`);
      if (screen !== shown) return;
      // The API shows the staff any order, and names its customer.
      if ((order.customer_id ?? customerId()) !== customerId()) throw new Refused(404, { type: "not-found" });
      const isOver = !["PENDING", "REQUIRES_ACTION", "CANCELING"].includes(order.status);
      const state = JSON.stringify([order, confirmed.has(orderId)]);
      if (state !== drawn) drawOrder(order);
      drawn = state;
      if (isOver) return;
      // Once it is drawn: Stripe may take seconds.
      isAsked ||= order.status === "REQUIRES_ACTION" && (await paymentOf(orderId).then(() => true, () => false));
    } catch (error) {
      if (screen !== shown) return;
      if (!(error instanceof NoAnswer)) throw error;
      notice(words.tryingAgain(error.message));
      drawn = null; // The next answer is drawn, and clears the notice.
    }
    await seconds(pause);
  }
}

/** Orders whose payment the bank has confirmed: Stripe knows it before the order does. */
const confirmed = new Set();

async function paymentOf(orderId) {
  const payment = await request(config, "GET", `/orders/${encodeURIComponent(orderId)}/payment`);
  if (["processing", "succeeded"].includes(payment.stripe_status)) confirmed.add(orderId);
  return payment;
}

function drawOrder(order) {
  const { order_id, status, cancel_reason, amount, currency, amount_refunded } = order;
  const isForCard = status === "PAYMENT_DECLINED";
  const actions = el("section", { id: "actions", class: isForCard ? "panel" : "" });
  const cancel = () => request(config, "POST", `/orders/${order_id}/cancel`).then(() => route());
  const isBooked = status === "REQUIRES_ACTION" && confirmed.has(order_id);
  const canCancel = ["PENDING", "REQUIRES_ACTION", "PAYMENT_DECLINED"].includes(status) && !isBooked;
  const said = isBooked ? words.BOOKING : (words.CANCEL_REASON[cancel_reason] ?? words.STATUS[status]?.[1] ?? status);
  notice("");
  show(words.order(money(amount, currency)),
    el("div", { class: "columns" },
      el("div", {},
        el("p", { id: "status", class: `status ${isBooked ? "PENDING" : status}`, "data-status": status }, said),
        el("p", { id: "decline" }, (isForCard && order.attempts.at(-1).message) || ""),
        actions,
        canCancel ? button(words.CANCEL, cancel, "quiet") : "",
        el("p", {}, el("a", { href: "#/" }, words.BACK))),
      el("div", {},
        el("section", { class: "panel" },
          el("h2", {}, words.BOUGHT),
          ...billOf(order.items, amount, currency),
          el("p", {}, amount_refunded ? words.refunded(money(amount_refunded, currency)) : ""),
          el("p", { class: "small" }, words.placed(when(order.placed_at), order_id))),
        isForCard ? testCards() : "")));
  if (isForCard) anotherCard(actions, order).catch(failed);
  if (status === "REQUIRES_ACTION" && !isBooked) actions.append(button(words.CONFIRM, () => confirmWithBank(order_id)));
}

async function confirmWithBank(orderId) {
  const { client_secret: clientSecret } = await paymentOf(orderId);
  // Its question (3-D Secure) may be answered or closed in another tab, too: the order's status says what happened.
  if (clientSecret) await (await loadStripe(config)).handleNextAction({ clientSecret }).catch(() => null);
  await route();
}

/** After a decline: another card, under a key of its own, for the same order. */
async function anotherCard(actions, order) {
  const attempt = await remember(customerId(), "attempt", { order_id: order.order_id, after: order.attempts.length });
  if (isOpen(attempt)) return actions.replaceChildren(unanswered(attempt, () => send()));
  const place = el("div", {});
  actions.replaceChildren(place);
  await cardForm(order.currency)(place, order.amount, send);

  async function send(paymentMethod = null) {
    try {
      await post(attempt, `/orders/${order.order_id}/payments`, {}, paymentMethod);
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
      el("td", { class: status }, words.STATUS[status]?.[0] ?? status)),
  );
  if (screen !== shown) return;
  show(words.ORDERS, rows.length ? el("table", { class: "panel" }, ...rows) : el("p", {}, words.NO_ORDERS),
    next_cursor ? button(words.OLDER_ORDERS, () => ordersScreen(screen, next_cursor)) : "",
    el("p", {}, el("a", { href: "#/" }, words.BACK)));
}

// ---- what goes wrong

function notice(text) {
  document.getElementById("notice").textContent = text;
}

/** Say in words what went wrong, and what to do. Trying again is always safe. */
function failed(error) {
  if (error instanceof Refused && error.status === 401) {
    signOut();
    return route({ said: words.SIGN_IN_EXPIRED });
  }
  const isNoOrder = error.type === "not-found" && location.hash.startsWith("#/orders/");
  if (isNoOrder) return show(words.NO_SUCH_ORDER, el("p", {}, el("a", { href: "#/" }, words.BACK)));
  notice(error instanceof NoAnswer ? words.tryAgain(error.message) : error.message);
}
