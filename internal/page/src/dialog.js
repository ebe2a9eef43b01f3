// Dialogs that ask before something is done, and show what came of it.

import { act, newID } from "./act.js";

// An element with attributes and children; texts are texts.
export function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key === "class") e.className = value;
    else e.setAttribute(key, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== undefined));
  return e;
}

let last = 0;

// Opens a dialog. Each choice is { heading, text, fields, button, danger, request(form), headers, shown(done) }; back() returns the
// element that has the focus afterwards, if the one that had it is gone; after(answer) is called when the dialog is closed after something
// was done.
export function ask({ title, about, choices, back, after }) {
  const name = `ask-${++last}`;
  const refused = element("p", { class: "refused", role: "alert" });
  const cancel = element("button", { class: "button", type: "button" }, "Cancel");
  const dialog = element("dialog", { class: "ask", "aria-labelledby": name }, element("h2", { id: name }, title), about, ...choices.map(form), refused, element("div", { class: "does" }, cancel));
  let busy = false;
  let finished; // the answer

  function form(choice) {
    const button = element("button", { class: choice.danger ? "button danger" : "button primary" }, choice.button);
    const f = element("form", { class: "choice" }, choice.heading && element("h3", {}, choice.heading), choice.text && element("p", { class: "hint" }, choice.text), ...(choice.fields ?? []), element("div", { class: "does" }, button));
    let sent; // the request, as long as it may be repeated
    f.addEventListener("submit", async (e) => {
      e.preventDefault();
      if (busy) return;
      busy = true;
      dialog.setAttribute("aria-busy", "true");
      refused.textContent = "";
      sent ??= { id: newID(), ...choice.request(f) };
      const got = await act(sent, choice.headers);
      busy = false;
      dialog.removeAttribute("aria-busy");
      if (got.done) return done(choice, got.done);
      refused.textContent = got.refused;
      if (!got.again) sent = undefined;
      button.focus();
    });
    return f;
  }

  function done(choice, answer) {
    finished = answer;
    const close = element("button", { class: "button", type: "button" }, "Close");
    close.addEventListener("click", () => dialog.close());
    dialog.replaceChildren(dialog.firstChild, element("p", { role: "status" }, answer.said), ...(choice.shown?.(answer) ?? []), element("div", { class: "does" }, close));
    close.focus();
  }

  const before = document.activeElement;
  cancel.addEventListener("click", () => dialog.close());
  dialog.addEventListener("cancel", (e) => busy && e.preventDefault());
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (finished && after) return after(finished);
    if (!before?.isConnected || before === document.body) back?.()?.focus({ preventScroll: true });
    else before.focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
  (dialog.querySelector("input, select") ?? dialog.querySelector("button")).focus();
  return dialog;
}

// The ref that was made, to be copied: it is shown this once.
export function madeRef({ link, ref, qr }, text) {
  return [
    element("p", { class: "hint" }, text),
    ...(link ? [element("h3", {}, "Link for a browser"), copied(link, "The new link", element("a", { class: "button", href: link, target: "_blank", rel: "noopener" }, "Open")), element("img", { class: "qr", src: qr, alt: "The link as a QR code", width: "176", height: "176" })] : []),
    element("h3", {}, "Ref for mooring and programs"),
    copied(ref, "The new ref"),
  ];
}

function copied(link, name, ...more) {
  const field = element("input", { readonly: true, value: link, "aria-label": name, spellcheck: "false" });
  const copy = element("button", { class: "button", type: "button" }, "Copy");
  field.addEventListener("focus", () => field.select());
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(link);
      copy.textContent = "Copied";
    } catch {
      field.focus();
      copy.textContent = "Press Ctrl+C";
    }
  });
  return element("div", { class: "made" }, field, copy, ...more);
}
