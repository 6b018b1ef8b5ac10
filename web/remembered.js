// What makes a second click, tab or reload find the first order instead of placing a second one.
//
// localStorage, which all tabs share, has one record for each basket of a customer:
//   key      the Idempotency-Key: made before the customer can click, and kept whatever happens to a request
//   body     what was sent under it last; it is stored before it is sent
//   answer   the API's 202 with the order's id
//   refused  the API's refusal of the body: nothing was stored for it
//
// A record with a body and neither answer nor refusal is open: the order may exist. It is settled by sending the body
// again, as it was. A basket's key changes only after an answer, when the customer wants the same once more. So a
// request that was believed lost can never become a second order, even if the price or the card has changed since.
//
// All tabs share the customer's basket as well. What an order has bought leaves it in the moment in which the answer is
// stored: the order has it from then on, whatever becomes of the card, and the next order does not buy it again.

import { Refused } from "./api.js";
import * as words from "./words.js";

const KEPT_DAYS = 300; // The API forgets a key after more than a year (docs/guides/api.md).

/**
 * The customer's record of an order or of an attempt (`kind`), made at the first call, the same in every tab.
 * Throws if this browser cannot store it.
 */
export async function remember(customer, kind, what) {
  const name = prefix(customer, kind) + JSON.stringify(what);
  const made = { name, customer, key: crypto.randomUUID(), body: null, at: Date.now() };
  return navigator.locks.request(name, () => read(name) ?? write(made));
}

/** What is in the customer's basket: the quantity by sku. */
export function basketOf(customer) {
  return new Map(JSON.parse(localStorage.getItem(`shop:basket:${customer}`) ?? "[]"));
}

/** Change one quantity in the basket as it is stored now: another tab may have ordered since this one was drawn. */
export function putInBasket(customer, sku, quantity) {
  store(`shop:basket:${customer}`, [...basketOf(customer).set(sku, quantity)].filter(([, count]) => count > 0));
}

/** Whether a request was sent, and what became of it is unknown. */
export function isOpen({ body, answer, refused }) {
  return body != null && !answer && !refused;
}

/** An open order of the customer, whatever is in the basket now. */
export function openOrder(customer) {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(prefix(customer, "order")));
  return names.map(read).find((record) => record && isOpen(record));
}

/** The customer wants the same once more, and says so: the next key is another one. */
export function forget({ name, key }) {
  return navigator.locks.request(name, () => read(name)?.key === key && localStorage.removeItem(name));
}

/**
 * Send a request under the record's key, and return the answer: the one it has, or that of the open request sent again,
 * or that of the body which `make` returns; without `make`, nothing new is sent. Throws what `make` and `send` throw,
 * and what `check` throws, which is called before anything new is sent, when no other tab sends.
 */
export async function sendOnce({ name, key }, make, send, check = () => {}) {
  const found = read(name);
  // Outside the lock: a card form that is closed meanwhile never answers.
  const body = make && found && !found.answer && !isOpen(found) ? await make() : null;
  return navigator.locks.request("shop:send", async () => {
    const record = read(name);
    if (record?.key === key && record.answer) return record.answer;
    if (record?.key !== key || (!body && !isOpen(record))) throw new Error(words.OTHER_TAB);
    if (!isOpen(record)) {
      check();
      record.body = body;
      delete record.refused;
      write(record);
    }
    try {
      record.answer = await send(record.body, key);
      return record.answer;
    } catch (error) {
      // An expired sign-in (401) refuses nothing: an earlier try may have been executed before it expired.
      if (error instanceof Refused && error.status !== 401) record.refused = true;
      throw error;
    } finally {
      try {
        write(record); // Always: the browser's data may have been cleared meanwhile, and with them the key.
        if (record.answer) takeOut(record);
      } catch {
        // As it was stored before, it is open, which is safe: it is asked for again.
      }
    }
  });
}

/** Take what was ordered out of the basket, and leave what another tab has added. An attempt has no items. */
function takeOut({ customer, body }) {
  const basket = basketOf(customer);
  for (const { sku, quantity } of body.items ?? []) {
    putInBasket(customer, sku, (basket.get(sku) ?? 0) - quantity);
  }
}

function prefix(customer, kind) {
  return `shop:${kind}:${encodeURIComponent(customer)}:`;
}

function read(name) {
  const record = JSON.parse(localStorage.getItem(name) ?? "null");
  return record && Date.now() - record.at < KEPT_DAYS * 86_400_000 ? record : null;
}

function write(record) {
  store(record.name, record);
  return record;
}

function store(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    throw new Error(words.CANNOT_REMEMBER);
  }
}
