// The orders API: JSON over HTTP, problem+json errors. A request with an Idempotency-Key is safe to send again.

import { accessToken, hasExpired } from "./session.js";
import * as words from "./words.js";

const TRIES = 5;
const LONGEST_SECONDS = 35; // API Gateway answers within 30.

/** The API refused: `status`, the problem's `type`, and its `detail` in words. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? words.refusedWith(status));
    this.status = status;
    this.type = (problem.type ?? "").split(":").pop();
  }
}

/** Nothing came back, or the API is overloaded. Whether the request was executed is unknown: send it again. */
export class NoAnswer extends Error {}

/** One request. Throws Refused or NoAnswer. */
export async function once(config, method, path, { key = "", body = null } = {}) {
  const headers = { Authorization: `Bearer ${accessToken() ?? ""}` };
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const signal = AbortSignal.timeout(LONGEST_SECONDS * 1000);
  let response;
  try {
    response = await fetch(config.api + path, { method, headers, body: body ? JSON.stringify(body) : null, signal });
  } catch {
    // A gateway's own 401 may lack the header with which a browser would show it to this page.
    throw hasExpired() ? new Refused(401, {}) : new NoAnswer(words.UNREACHABLE);
  }
  if ([408, 429].includes(response.status) || response.status >= 500) throw new NoAnswer(words.BUSY);
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  return response.json().catch(() => {
    throw new NoAnswer(words.UNREACHABLE);
  });
}

/** A request that is safe to repeat, until it is answered. Throws Refused, and NoAnswer after several tries. */
export async function request(config, method, path, options = {}) {
  for (let tried = 1; ; tried++) {
    try {
      return await once(config, method, path, options);
    } catch (error) {
      if (!(error instanceof NoAnswer) || tried === TRIES) throw error;
      await seconds(tried / 2);
    }
  }
}

export function seconds(count) {
  return new Promise((done) => setTimeout(done, count * 1000));
}
