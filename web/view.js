// Elements, without a framework. Everything is set as text, so nothing from the API can become markup.

import { LANGUAGE, SHOP } from "./words.js";

/** An element with its attributes and children. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Replace the screen, name the tab after it, and move the focus to it, for those who hear the page. */
export function show(title, ...children) {
  const main = document.getElementById("main");
  main.replaceChildren(el("h1", {}, title), ...children);
  main.focus({ preventScroll: true });
  document.title = `${title} · ${SHOP}`;
}

/** A button that is disabled while its work is done. */
export function button(label, work, kind = "") {
  return on(el("button", { type: "button", class: kind }, label), "click", work);
}

/** Do the work at each event; its buttons are disabled meanwhile. What fails goes to the page's `failed`. */
export function on(target, event, work) {
  target.addEventListener(event, async (given) => {
    if (event === "submit") given.preventDefault();
    const buttons = target.matches?.("button") ? [target] : (target.querySelectorAll?.("button") ?? []);
    for (const each of buttons) each.disabled = true;
    try {
      await work(given);
    } catch (error) {
      dispatchEvent(new CustomEvent("failed", { detail: error }));
    } finally {
      for (const each of buttons) each.disabled = false;
    }
  });
  return target;
}

// Stripe's minor units, as shared/onecharge/contract/money.py has them: the browser's own differ, such as for HUF.
const NO_DECIMALS = "BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF".split(" ");
const THREE_DECIMALS = "BHD JOD KWD OMR TND".split(" ");

/** 2500 EUR as €25.00. Amounts are integers in the currency's minor unit. */
export function money(amount, currency) {
  const digits = NO_DECIMALS.includes(currency) ? 0 : THREE_DECIMALS.includes(currency) ? 3 : 2;
  const decimals = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  const format = new Intl.NumberFormat(LANGUAGE, { style: "currency", currency, ...decimals });
  return format.format(amount / 10 ** digits);
}

export function when(timestamp) {
  return new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "medium", timeStyle: "short" }).format(new Date(timestamp));
}
