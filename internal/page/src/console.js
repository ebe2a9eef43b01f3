// What can be done on a page of a ref: buttons and keys on a session's messages. The server decides whether the ref may;
// what the page knows it may not do has no button.

import { newSecret, page } from "./act.js";
import { access } from "./access.js";
import { ask, element, madeRef } from "./dialog.js";
import { requests } from "./requests.js";

const may = new Set((document.body.dataset.may ?? "").split(" "));
let acts = false; // messages have buttons
let space; // the space's token, on a page of a session's ref

if (document.body.dataset.page === "session") start();
else if (document.body.dataset.page === "access") access();

async function start() {
  requests(may);
  document.addEventListener("mooring-changed", ({ detail: key }) => decorate(key));
  for (const child of document.querySelectorAll("#children [data-child]")) startedBy(child);
  document.addEventListener("click", (e) => {
    const button = e.target.closest?.("[data-act]");
    if (button?.dataset.act === "message") aboutMessage(button.closest(".msg"));
    if (button?.dataset.act === "unrevert") unrevert();
    if (button?.dataset.act === "purge") aboutValue(button.closest(".extra"));
  });
  if (may.has("fork") && !location.pathname.includes("/sessions/")) {
    space = await page().spaceToken();
    if (!space) may.delete("fork");
  }
  acts = ["revert", "fork", "purge"].some((action) => may.has(action));
  if (!acts) return;
  for (const extra of document.querySelectorAll("#rest > .extra")) withPurge(extra);
  for (const message of document.querySelectorAll("#log > .msg")) withButton(message);
  document.addEventListener("keydown", (e) => {
    if (e.key !== "a" || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]") || e.target.closest?.("input, select, textarea")) return;
    const message = document.activeElement.closest?.(".msg") ?? inView();
    if (!message) return;
    e.preventDefault();
    aboutMessage(message);
  });
  document.querySelector("#help .keys")?.append(element("div", {}, element("dt", {}, element("kbd", {}, "a")), element("dd", {}, "do something from the message in view on")));
}

// The message at the top of the window.
function inView() {
  const all = [...document.querySelectorAll("#log .msg:not(.orphan, .later)")];
  return all.findLast((m) => m.getBoundingClientRect().top < 140) ?? all[0];
}

function decorate(key) {
  if (key.startsWith("message/")) {
    const message = document.getElementById(`m-${key.slice("message/".length)}`);
    if (message && acts) withButton(message);
  } else if (key.startsWith("part/")) {
    for (const child of document.querySelectorAll("#children [data-child]")) startedBy(child, key);
  } else if (acts) {
    const extra = document.querySelector(`#rest > [data-key="${CSS.escape(key)}"]`);
    if (extra) withPurge(extra);
  }
}

function withButton(message) {
  const head = message.querySelector(":scope > .head");
  if (head && !head.querySelector(".act"))
    head.append(element("button", { class: "act", type: "button", "data-act": "message", "aria-haspopup": "dialog", "aria-label": "From this message on", title: "From this message on (a)" }, "⋯"));
}

function withPurge(extra) {
  if (may.has("purge") && extra.childElementCount > 0 && !extra.querySelector(":scope > .act"))
    extra.append(element("button", { class: "act", type: "button", "data-act": "purge", "aria-haspopup": "dialog", "aria-label": `Purge ${extra.dataset.key}`, title: "Purge" }, "⋯"));
}

// Shows a child below the part that started it: named by the child, or by what opencode's tool says.
function startedBy(child, changed) {
  const { child: id, part } = child.dataset;
  const key = part ?? document.querySelector(`#log [data-started="${CSS.escape(id)}"]`)?.closest("[data-key]")?.dataset.key;
  if (!key || (changed && key !== changed)) return;
  const block = document.querySelector(`#log [data-key="${CSS.escape(key)}"]`);
  if (!block || block.querySelector(`:scope > [data-of="${CSS.escape(id)}"]`)) return;
  const to = child.querySelector(":scope > a")?.getAttribute("href") ?? "#children";
  block.append(element("p", { class: "note started", "data-of": id }, "Started ", element("a", { href: to }, "a session of its own")));
}

const idOf = (message) => message.id.slice("m-".length);

// What a message says, in a line.
function gist(message) {
  const said = message.querySelector("[data-says]")?.dataset.says ?? message.querySelector(".md, .name")?.textContent ?? "";
  return said.trim().replace(/\s+/g, " ").slice(0, 160);
}

function aboutMessage(message) {
  const id = idOf(message);
  const after = [...document.querySelectorAll("#log .msg")];
  const later = after.length - after.indexOf(message) - 1;
  const who = message.querySelector(".head h2")?.textContent ?? "Message";
  const choices = [];
  if (may.has("fork"))
    choices.push({
      heading: "Fork",
      text: "A new session that begins with all up to this message, and this message. This one stays as it is.",
      fields: [element("label", {}, "What it is for", element("input", { name: "label", maxlength: "200", autocomplete: "off", placeholder: "optional" }))],
      button: "Fork from here",
      headers: space && { "Mooring-Space-Token": space },
      request: (form) => ({ do: "fork", message: id, label: form.elements.label.value.trim(), secret: newSecret() }),
      shown: (made) => madeRef(made, "Whoever has this link owns the new session. It is shown this once: keep it now."),
    });
  if (may.has("revert"))
    choices.push({
      heading: "Revert",
      text: `Hides this message${later === 0 ? "" : later === 1 ? " and the one after it" : ` and the ${later} after it`}, for everybody. It can be shown again until something new is said. Who is still writing one of them is stopped.`,
      button: "Revert to before this",
      danger: true,
      request: () => ({ do: "revert", message: id }),
    });
  if (may.has("purge")) choices.push(purge([message, ...message.querySelectorAll(".part")].map((block) => block.dataset.key)));
  ask({
    title: "From this message on",
    about: element("blockquote", { class: "gist", dir: "auto" }, element("strong", {}, who), ` ${gist(message)}`),
    choices,
    back: () => document.getElementById(`m-${id}`)?.querySelector(".act"),
  });
}

// Removes every payload that a key ever had, one of several.
function purge(keys) {
  const select = element("select", { name: "key" }, ...keys.map((key) => element("option", { value: key }, key)));
  return {
    heading: "Purge",
    text: "Every value that a key ever had is removed from the log and the state, for good: a pasted password, say. Forks, backups and those who have read it keep theirs.",
    fields: [element("label", {}, "Key", select)],
    button: "Purge it",
    danger: true,
    request: (form) => ({ do: "purge", key: form.elements.key.value }),
  };
}

function aboutValue(extra) {
  ask({ title: "Remove a value", choices: [{ ...purge([extra.dataset.key]), heading: undefined }], back: () => document.getElementById("session") });
}

function unrevert() {
  ask({
    title: "Show it again",
    choices: [{ text: "All that the revert has hidden is shown again, for everybody.", button: "Show it again", request: () => ({ do: "unrevert" }) }],
    back: () => document.getElementById("session"),
  });
}
