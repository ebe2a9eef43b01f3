// The page of a ref before it is shown. The secret in the fragment, or typed, is removed from the address and sent in one POST to
// the page's own server, which returns a token; with that the content is requested.

import { isAnchor } from "./anchors.js";
import { paint } from "./paint.js";
import { backoff, fetchInTime, seconds } from "./fetch.js";
import { reason } from "./reply.js";
import { askTabs, browserId, drop, headers, keep, ownPage, token } from "./token.js";

// start is called once the content is there.
export function gate(start) {
  const panel = document.getElementById("gate");
  const state = document.getElementById("state");
  const again = panel.querySelector("[data-do=again]"); // on a session's page only
  const field = document.getElementById("ref"); // on the list's page only
  const what = field ? "the list" : "the session";
  let body; // the body of the POST
  let asked = false;
  let painting = false; // the content is loading or there: a link that is opened now is handled by another() once start is called

  let attempts = 0; // in a row that failed, though a later one may succeed
  let retry; // the timer until the next one
  const tell = (text, failed) => {
    clearTimeout(retry);
    retry = undefined;
    state.textContent = text;
    panel.dataset.state = failed ? "failed" : "";
    if (failed) panel.hidden = false;
  };
  // A failure that may pass is tried again, later each time, or when the button is pressed.
  const failed = (text, passes) => {
    const wait = passes ? backoff(attempts++) : 0;
    tell(passes ? `${text} Trying again in ${seconds(wait)} s.` : text, true);
    if (passes) retry = setTimeout(anew, wait);
    if (again) again.hidden = !passes;
  };
  const anew = () => (body === undefined ? show() : open());
  const away = "The server does not answer. Is it there, and are you online?";

  async function open() {
    if (again) again.hidden = true;
    tell(`Opening ${what}…`, false);
    let opened;
    try {
      opened = await post(panel.dataset.open, body);
    } catch {
      return failed(away, true);
    }
    if (opened.refused) return failed(opened.refused, opened.passes);
    keep(opened.token);
    body = undefined;
    attempts = 0;
    await show();
  }

  async function show() {
    tell(`Opening ${what}…`, false);
    let reply;
    try {
      reply = await fetchInTime(location.pathname + (field || location.pathname.endsWith("/access") || location.search === "?all" ? location.search : ""), { headers: headers(), credentials: "same-origin", cache: "no-store", redirect: "error" });
      if (reply.ok) {
        painting = true;
        await paint(reply);
        window.removeEventListener("hashchange", changed);
        return start();
      }
    } catch {
      painting = false;
      return failed(away, true);
    }
    if (reply.status === 401 && !asked) return fromTabs(token()); // it ended here; another tab may have opened it since
    // What is refused below the token's own page may be that alone: the token stays.
    if (reply.status === 401 || (ownPage() && [403, 404, 410].includes(reply.status))) drop();
    failed(await reason(reply), reply.status === 429 || reply.status >= 500);
  }

  // Another tab of this browser may have the page open.
  async function fromTabs(dead) {
    asked = true;
    const found = await askTabs();
    if (body !== undefined || field?.value) return; // it was opened otherwise in the meantime
    if (found !== undefined && found !== dead) keep(found);
    else if (dead !== undefined) drop();
    if (token() !== undefined) return show();
    panel.hidden = false;
    if (field) {
      tell(dead === undefined ? "" : "The list is not open in this browser any more: show the ref again.", dead !== undefined);
      field.focus();
    } else {
      failed("This link has no secret, and the session is open in no tab of this browser: open the whole link, with the part after its # sign.", false);
    }
  }

  const take = () => {
    const found = fragment();
    if (found) {
      body = field ? { ref: found } : { secret: found };
      open();
    } else if (token() === undefined) fromTabs();
    else {
      panel.hidden = true; // the content comes at once
      show();
    }
  };
  again?.addEventListener("click", anew);
  window.addEventListener("online", () => retry !== undefined && anew());
  panel.addEventListener("submit", (e) => {
    e.preventDefault();
    const ref = field.value.trim();
    if (!ref) return;
    body = { ref };
    open();
  });
  const changed = () => !painting && secretIn(location.href) && take();
  window.addEventListener("hashchange", changed);
  take();
}

// A link of another ref for an open page's address, or of the same ref again, replaces the page.
export function another(opens, what) {
  const take = async () => {
    const secret = fragment();
    if (!secret) return;
    const note = document.createElement("p");
    note.className = "hint note";
    note.setAttribute("role", "alert");
    document.querySelector("main").prepend(note);
    try {
      const opened = await post(opens, what === "list" ? { ref: secret } : { secret });
      if (!opened.refused) {
        keep(opened.token);
        return location.replace(location.pathname);
      }
      note.textContent = `This is the ${what} from before. The link's own: ${opened.refused}`;
    } catch {
      note.textContent = `This is the ${what} from before. The link's own did not open: the server does not answer.`;
    }
  };
  window.addEventListener("hashchange", take);
  take();
}

// Returns { token }, or { refused, passes }: the reason, and whether a later try may succeed.
async function post(url, body) {
  const reply = await fetchInTime(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Mooring": "1" },
    body: JSON.stringify({ ...body, redemption: browserId() }),
    credentials: "same-origin",
    cache: "no-store",
    redirect: "error",
  });
  if (reply.ok) return reply.json();
  return { refused: await reason(reply), passes: reply.status === 429 || reply.status >= 500 };
}

// The secret after the # of an address; none if that is a position in a page.
function secretIn(href) {
  const raw = href.split("#").slice(1).join("#");
  let text = raw;
  try {
    text = decodeURIComponent(raw);
  } catch {
    // It is used as it is.
  }
  return isAnchor(text) ? "" : text;
}

// Takes the secret out of the address.
function fragment() {
  const found = secretIn(location.href);
  if (found) history.replaceState(null, "", location.pathname + location.search);
  return found;
}
