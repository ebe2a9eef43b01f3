// The pages' script, by page. The first content is complete without it.

import { closeButton } from "./close.js";
import { another, gate } from "./gate.js";
import { leaving } from "./leaving.js";
import { session } from "./session.js";
import { label, themeButton } from "./theme-button.js";
import { localTimes } from "./times.js";
import { headers, shareToken, spaceToken } from "./token.js";

leaving();
shareToken();
themeButton();
closeButton();
const actionsLoaded = early();
start();

function start() {
  label();
  localTimes(document.body);
  const { page } = document.body.dataset;
  const close = document.querySelector("[data-do=close]")?.dataset.close; // of a page that a ref shows
  if (page === "unlock" || page === "signin") gate(start);
  if (close && (page === "session" || page === "sessions")) another(close.replace(/close$/, "open"), page === "session" ? "session" : "list");
  actions();
  if (page === "session") {
    // A position in the page that was there before its content.
    if (close && location.hash) location.replace(location.href);
    session();
  }
}

// The script and the style of a page's buttons by which something is done; pages without a ref do not load them. The
// script asks this one for the headers of its requests.
function actions() {
  const { script, style } = document.body.dataset;
  if (!script) return;
  document.addEventListener("mooring-ask", ({ detail }) => Object.assign(detail, { headers, spaceToken }));
  const loaded = Object.assign(document.createElement("script"), { type: "module", src: script, onload: actionsLoaded });
  document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: style }), loaded);
}

// A button of that script which is pressed before the script is there is pressed again when it is: call what is returned then.
function early() {
  let pressed;
  const press = (e) => {
    const button = e.target.closest?.("[data-act], #composer button");
    if (!button) return;
    pressed = button;
    e.preventDefault(); // no form is sent by the browser itself
  };
  document.addEventListener("click", press);
  return () => {
    document.removeEventListener("click", press);
    pressed?.click();
  };
}
