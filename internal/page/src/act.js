// An action under the page's ref: one request, which may be repeated with its id.

import { reason } from "./reply.js";

// What the page's own script has: headers(more) and spaceToken().
export function page() {
  const detail = {};
  document.dispatchEvent(new CustomEvent("mooring-ask", { detail }));
  return detail;
}

// Returns { done }, or { refused, again }: why not, and whether the same request may still succeed.
export async function act(body, headers = {}) {
  let reply;
  try {
    reply = await fetch(`${location.pathname.replace(/(\/access)?\/?$/, "")}/do`, {
      method: "POST",
      headers: page().headers({ "Content-Type": "application/json", "X-Mooring": "1", ...headers }),
      body: JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
    });
    if (reply.ok) return { done: await reply.json() };
  } catch {
    return { refused: "The server does not answer. Try again: what has been done already is not done twice.", again: true };
  }
  return { refused: await reason(reply), again: reply.status === 429 || reply.status >= 500, signedOut: reply.status === 401 };
}

const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

// A new action's id: a ULID.
export function newID() {
  let time = Date.now();
  let text = "";
  for (let i = 0; i < 10; i++, time = Math.floor(time / 32)) text = digits[time % 32] + text;
  for (const b of crypto.getRandomValues(new Uint8Array(16))) text += digits[b % 32];
  return text;
}

// A new ref's secret.
export function newSecret() {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
