// Giving up the token: signing out, in all tabs.

import { endToken, headers } from "./token.js";

export function closeButton() {
  for (const button of document.querySelectorAll("[data-do=close]")) {
    button.addEventListener("click", async () => {
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
}
