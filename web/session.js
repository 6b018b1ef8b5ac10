// Sign-in by OAuth 2.0 Authorization Code with PKCE (RFC 7636), against the issuer that config.json names.
// The access token is kept for this tab only (sessionStorage): closing the tab signs out of the page.

import * as words from "./words.js";

const TOKEN = "shop:token";
const PENDING = "shop:sign-in";
const HERE = location.origin + location.pathname; // The issuer has to know it as a redirect URI.

/** The access token, or null if nobody is signed in. Whether it has expired is the API's to say, not this clock's. */
export function accessToken() {
  return sessionStorage.getItem(TOKEN);
}

/** Whether the access token has expired by this clock, which may be wrong. */
export function hasExpired() {
  return claimsOf(accessToken()).exp * 1000 < Date.now();
}

/** The customer's id: the token's subject. The API verifies the token; the page only names what it stores by it. */
export function customerId() {
  return claimsOf(accessToken()).sub ?? null;
}

export function signOut() {
  sessionStorage.removeItem(TOKEN);
}

/** Leave for the issuer's sign-in page. It comes back to this page, at the same place. */
export async function signIn(config) {
  const [state, verifier] = [crypto.randomUUID(), crypto.randomUUID() + crypto.randomUUID()];
  sessionStorage.setItem(PENDING, JSON.stringify({ state, verifier, hash: location.hash }));
  const url = new URL(config.authorize_url);
  url.search = new URLSearchParams({
    response_type: "code",
    client_id: config.client_id,
    redirect_uri: HERE,
    scope: config.scope,
    state,
    code_challenge: await challengeOf(verifier),
    code_challenge_method: "S256",
  }).toString();
  location.assign(url);
}

/** If the issuer has just sent the customer back, exchange its code for an access token. Throws if it refuses. */
export async function finishSignIn(config) {
  const answer = new URLSearchParams(location.search);
  if (!answer.has("code") && !answer.has("error")) return;
  const pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "{}");
  sessionStorage.removeItem(PENDING);
  history.replaceState(null, "", HERE + (pending.hash ?? ""));
  // Anybody can write such an address, with a code of their own: the customer would order under another's name.
  const isOurs = pending.state && answer.get("state") === pending.state;
  if (!isOurs || answer.has("error")) throw new Error(words.SIGN_IN_FAILED);
  const response = await fetch(config.token_url, {
    method: "POST",
    body: new URLSearchParams({
      grant_type: "authorization_code",
      client_id: config.client_id,
      code: answer.get("code"),
      code_verifier: pending.verifier,
      redirect_uri: HERE,
    }),
  }).catch(() => null);
  const { access_token } = (await response?.json().catch(() => null)) ?? {};
  if (!claimsOf(access_token).sub) throw new Error(words.SIGN_IN_FAILED);
  sessionStorage.setItem(TOKEN, access_token);
}

/** The claims of a JSON Web Token; none of anything else. */
function claimsOf(token) {
  try {
    const base64 = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(base64), (byte) => byte.charCodeAt(0))));
  } catch {
    return {};
  }
}

async function challengeOf(verifier) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier)));
  return btoa(String.fromCharCode(...digest)).replaceAll("+", "-").replaceAll("/", "_").replace("=", "");
}
