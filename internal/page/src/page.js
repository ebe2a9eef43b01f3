// What the pages' script does, by page. All that is shown at first is there without it.

import { closeButton } from "./close.js";
import { another, gate } from "./gate.js";
import { leaving } from "./leaving.js";
import { session } from "./session.js";
import { themeButton } from "./theme-button.js";
import { localTimes } from "./times.js";
import { shareToken } from "./token.js";

leaving();
shareToken();
start();

function start() {
  themeButton();
  closeButton();
  localTimes(document.body);
  const { page } = document.body.dataset;
  const close = document.querySelector("[data-do=close]")?.dataset.close; // of a page that a ref shows
  if (page === "unlock" || page === "signin") gate(start);
  if (close && (page === "session" || page === "sessions")) another(close.replace(/close$/, "open"), page === "session" ? "session" : "list");
  if (page === "session") {
    // A place in the page that was there before the page itself.
    if (close && location.hash) location.replace(location.href);
    session();
  }
}
