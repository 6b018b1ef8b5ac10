// Sign-in by OAuth 2.0 Authorization Code with PKCE (RFC 7636), against the issuer that config.json names.
// The access token is kept for this tab only (sessionStorage): closing the tab signs out of the page.

const TOKEN = "shop:token";
const PENDING = "shop:sign-in";

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
  const pending = { state: random(), verifier: random(), hash: location.hash };
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  const url = new URL(config.authorize_url);
  url.search = new URLSearchParams({
    response_type: "code",
    client_id: config.client_id,
    redirect_uri: here(),
    scope: config.scope,
    state: pending.state,
    code_challenge: await challengeOf(pending.verifier),
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
  history.replaceState(null, "", here() + (pending.hash ?? ""));
  // Before the state is compared, nothing of the address is shown: anybody can write one.
  const isOurs = pending.state && answer.get("state") === pending.state;
  if (!isOurs || answer.has("error")) {
    throw new Error((isOurs && answer.get("error_description")) || "The sign-in was not finished. Sign in again.");
  }
  const response = await fetch(config.token_url, {
    method: "POST",
    body: new URLSearchParams({
      grant_type: "authorization_code",
      client_id: config.client_id,
      code: answer.get("code"),
      code_verifier: pending.verifier,
      redirect_uri: here(),
    }),
  }).catch(() => null);
  if (!response?.ok) throw new Error("The sign-in was refused, or its server cannot be reached. Sign in again.");
  const { access_token } = await response.json().catch(() => ({}));
  if (!claimsOf(access_token).sub) {
    throw new Error("The sign-in gave no access token that names a customer: this shop is not set up yet.");
  }
  sessionStorage.setItem(TOKEN, access_token);
}

/** This page's address, which the issuer has to know as a redirect URI. */
function here() {
  return location.origin + location.pathname;
}

/** The claims of a JSON Web Token; none of anything else. */
function claimsOf(token) {
  try {
    const bytes = Uint8Array.from(atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
    return JSON.parse(new TextDecoder().decode(bytes));
  } catch {
    return {};
  }
}

function random() {
  return base64url(crypto.getRandomValues(new Uint8Array(32)));
}

async function challengeOf(verifier) {
  return base64url(new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier))));
}

function base64url(bytes) {
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
