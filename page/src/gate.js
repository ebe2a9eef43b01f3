// Exchanging a secret, which stands in the fragment or is typed, for a cookie. The
// secret goes into one POST to our own server, and out of the address.

import { isAnchor } from "./anchors.js";

export function gate(kind) {
  const panel = document.getElementById("gate");
  const state = document.getElementById("state");
  const tell = (text, failed) => {
    state.textContent = text;
    panel.dataset.state = failed ? "failed" : "";
  };
  const open = async (body) => {
    tell(kind === "unlock" ? "Opening the session…" : "Opening the list…", false);
    try {
      const reply = await fetch(panel.dataset.open, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-Mooring": "1" },
        body: JSON.stringify(body),
        credentials: "same-origin",
        cache: "no-store",
        redirect: "error",
      });
      if (!reply.ok) {
        tell(await reason(reply), true);
        return reply.status === 429 || reply.status >= 500;
      }
    } catch {
      tell("The server does not answer. Is it there, and are you online?", true);
      return true;
    }
    location.replace(location.pathname + location.search); // the fragment is gone by now
    return false;
  };

  if (kind === "unlock") {
    const again = panel.querySelector("[data-do=again]");
    let secret = "";
    const unlock = async () => {
      again.hidden = true;
      again.hidden = !(await open({ secret }));
    };
    again.addEventListener("click", unlock);
    const take = () => {
      const found = fragment();
      if (!found && onceMore()) return undefined;
      if (!found) return tell("This link has no secret: the part from the # sign on is missing. Ask for the whole link.", true);
      if (isAnchor(found)) return tell("This link names a place in a session but carries no secret. Open the session with its whole link first.", true);
      secret = found;
      unlock();
    };
    window.addEventListener("hashchange", () => location.hash.length > 1 && take());
    take();
    return;
  }

  const field = document.getElementById("ref");
  panel.addEventListener("submit", (e) => {
    e.preventDefault();
    const ref = field.value.trim();
    if (ref) open({ ref });
  });
  const take = () => {
    const ref = fragment();
    if (ref) open({ ref });
    else if (!onceMore()) field.focus();
  };
  window.addEventListener("hashchange", () => location.hash.length > 1 && take());
  take();
}

// The list of a browser that is signed in, opened by the link of another ref: that
// one takes the place of the one before.
export async function another() {
  const ref = fragment();
  if (!ref) return;
  const note = document.createElement("p");
  note.className = "hint note";
  note.setAttribute("role", "alert");
  document.querySelector("main").prepend(note);
  const open = document.querySelector("[data-do=close]").dataset.close.replace(/close$/, "open");
  try {
    const reply = await fetch(open, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Mooring": "1" },
      body: JSON.stringify({ ref }),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
    });
    if (reply.ok) return location.replace(location.pathname);
    note.textContent = `This is the list from before. The link's own: ${await reason(reply)}`;
  } catch {
    note.textContent = "This is the list from before. The link's own did not open: the server does not answer.";
  }
}

// Who comes by another site's link brings no cookie with that first request, though
// there may be one: loading once more brings it. Not twice: then there is none.
function onceMore() {
  const name = onceName();
  try {
    const last = Number(sessionStorage.getItem(name) ?? 0);
    if (Date.now() - last < 10_000) return false;
    sessionStorage.setItem(name, String(Date.now()));
  } catch {
    return false;
  }
  location.replace(location.pathname + location.search);
  return true;
}

// The page itself was shown: whoever comes by such a link again, however soon, is
// let in again.
export function shown() {
  try {
    sessionStorage.removeItem(onceName());
  } catch {
    // Then nothing was kept.
  }
}

const onceName = () => `mooring-again:${location.pathname}`;

// What stands behind the # sign, which it is taken from.
function fragment() {
  const raw = location.href.split("#").slice(1).join("#");
  if (raw) history.replaceState(null, "", location.pathname + location.search);
  try {
    return decodeURIComponent(raw);
  } catch {
    return raw;
  }
}

// Why a server refuses, in words.
async function reason(reply) {
  try {
    const body = await reply.json();
    const text = body.message ?? body.error?.message ?? body.error;
    if (typeof text === "string" && text) return text;
  } catch {
    // No JSON: the status has to do.
  }
  return `The server refuses (${reply.status} ${reply.statusText}).`;
}
