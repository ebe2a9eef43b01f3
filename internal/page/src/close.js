// Giving up the token: signing out, in all tabs.

import { endToken, headers } from "./token.js";

// The listener is the document's: a button works from the moment it is shown, while the rest of its page arrives.
export function closeButton() {
  document.addEventListener("click", async ({ target }) => {
    const button = target.closest?.("[data-do=close]");
    if (!button) return;
    button.disabled = true;
    try {
      const reply = await fetch(button.dataset.close, { method: "POST", headers: headers({ "X-Mooring": "1", "Content-Type": "application/json" }), body: "{}", credentials: "same-origin", cache: "no-store" });
      if (reply.ok) return endToken();
      button.textContent = "It did not work: try again";
    } catch {
      button.textContent = "No answer: try again";
    }
    button.disabled = false;
  });
}
