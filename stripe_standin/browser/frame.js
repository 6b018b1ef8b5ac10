// What runs inside the frames of the stub, at the stand-in's own address: only here is a card's number ever read.
// @ts-check

const $ = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

const NO_CONNECTION = { type: "api_connection_error", message: "Stripe cannot be reached." };

/** A request to the stand-in with the page's publishable key. */
async function api(/** @type {string} */ key, /** @type {string} */ method, /** @type {string} */ path, /** @type {Record<string, string>} */ given) {
  const parameters = new URLSearchParams(given);
  const url = method === "GET" ? `${path}?${parameters}` : path;
  const options = { method, headers: { Authorization: `Bearer ${key}` }, body: method === "GET" ? undefined : parameters };
  return fetch(url, options).then((response) => response.json(), () => ({ error: NO_CONNECTION }));
}

/** @returns {{ error?: any, card?: any }} */
function validate() {
  const number = $("number").value.replace(/\s/g, "");
  const [month, year] = $("expiry").value.split("/").map((/** @type {string} */ part) => part.trim());
  const error = (/** @type {string} */ code, /** @type {string} */ message) => ({ error: { type: "validation_error", code, message } });
  if (number.length < 14) return error("incomplete_number", "Your card number is incomplete.");
  if (!passesLuhn(number)) return error("invalid_number", "Your card number is invalid.");
  if (!/^\d\d$/.test(month ?? "") || !/^\d\d$/.test(year ?? "")) return error("incomplete_expiry", "Your card's expiration date is incomplete.");
  const [thisMonth, thisYear] = [new Date().getMonth() + 1, new Date().getFullYear() - 2000];
  if (+year < thisYear) return error("invalid_expiry_year_past", "Your card's expiration year is in the past.");
  if (+year === thisYear && +month < thisMonth) return error("invalid_expiry_month_past", "Your card's expiration date is in the past.");
  if (!/^\d{3,4}$/.test($("cvc").value)) return error("incomplete_cvc", "Your card's security code is incomplete.");
  return { card: { "card[number]": number, "card[exp_month]": month, "card[exp_year]": `20${year}`, "card[cvc]": $("cvc").value } };
}

function passesLuhn(/** @type {string} */ number) {
  const sum = [...number].reverse().reduce((sum, digit, index) => sum + (index % 2 ? [0, 2, 4, 6, 8, 1, 3, 5, 7, 9][+digit] : +digit), 0);
  return /^\d+$/.test(number) && sum % 10 === 0;
}

async function retrieve(/** @type {string} */ key, /** @type {string} */ clientSecret) {
  const [id] = clientSecret.split("_secret_");
  const found = await api(key, "GET", `/v1/payment_intents/${id}`, { client_secret: clientSecret });
  return found.error ? { error: found.error } : { paymentIntent: found };
}

/** Wait for the customer: complete, fail or close. */
async function challenge(/** @type {string} */ key, /** @type {string} */ clientSecret) {
  const answer = await new Promise((chosen) => {
    for (const name of ["complete", "fail", "close"]) $(name).onclick = () => chosen(name);
  });
  const [id] = clientSecret.split("_secret_");
  const given = { client_secret: clientSecret, succeed: String(answer === "complete") };
  if (answer !== "close") await api(key, "POST", `/v1/payment_intents/${id}/challenge`, given);
  const now = await retrieve(key, clientSecret);
  const failed = now.paymentIntent?.last_payment_error;
  return failed && now.paymentIntent.status === "requires_payment_method" ? { error: failed } : now;
}

addEventListener("message", async ({ data, ports: [port] }) => {
  if (!port) return;
  if (data.ask === "validate") port.postMessage({ error: validate().error });
  if (data.ask === "create") {
    const made = await api(data.key, "POST", "/v1/payment_methods", { type: "card", ...validate().card });
    port.postMessage(made.error ? { error: made.error } : { paymentMethod: made });
  }
  if (data.ask === "retrieve") port.postMessage(await retrieve(data.key, data.clientSecret));
  if (data.ask === "challenge") port.postMessage(await challenge(data.key, data.clientSecret));
});
