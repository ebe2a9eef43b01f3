// What the pages' script does, by page. All that is shown at first is there without it.

import { closeButton } from "./close.js";
import { another, gate, shown } from "./gate.js";
import { leaving } from "./leaving.js";
import { session } from "./session.js";
import { themeButton } from "./theme-button.js";
import { localTimes } from "./times.js";

leaving();
themeButton();
closeButton();
localTimes(document.body);
const kind = document.body.dataset.page;
if (kind === "session" || kind === "sessions") shown();
if (kind === "session") session();
if (kind === "sessions") {
  another();
  window.addEventListener("hashchange", () => location.hash.length > 1 && another());
}
if (kind === "unlock" || kind === "signin") gate(kind);
