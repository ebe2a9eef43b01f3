// The blocks of a session's page, by key. Those of the first paint are collected once;
// from then on an event costs only its own block.

import { messagesIn, parseKey, unbundle } from "./anchors.js";
import { Order, placeOf, precedes } from "./order.js";
import { localTimes } from "./times.js";

const scratch = document.createElement("template");

function parse(html) {
  scratch.innerHTML = html;
  const element = scratch.content.firstElementChild;
  scratch.content.replaceChildren();
  return element;
}

export class Blocks {
  messages = new Order();
  #elements = new Map(); // key → element
  #parts = new Map(); // message id → Order of its parts; none before one is known
  #others = new Order();
  #turns = new Map(); // message id → HTML of its turn's state; also of a message that is not on the page now
  #log = document.getElementById("log");
  #rest = document.getElementById("rest");

  constructor() {
    for (const article of messagesIn(this.#log)) {
      const key = article.getAttribute("data-key");
      const { message } = parseKey(key);
      this.#elements.set(key, article);
      this.messages.add(message, placeOf(article));
      if (!article.firstChild) continue; // it is left out: there may be thousands
      this.#keepTurn(message, article);
      this.#collect(message, article);
    }
    for (const extra of this.#rest.children) {
      this.#elements.set(extra.dataset.key, extra);
      this.#others.add(extra.dataset.key);
    }
    for (const request of document.querySelectorAll("#requests > *")) this.#elements.set(request.dataset.key, request);
    const info = document.getElementById("k-session");
    if (info) this.#elements.set("session", info);
  }

  // The order of a message's parts.
  #partsOf(message) {
    let parts = this.#parts.get(message);
    if (!parts) this.#parts.set(message, (parts = new Order()));
    return parts;
  }

  // Collects a message's parts.
  #collect(message, article) {
    const parts = new Order();
    this.#parts.set(message, parts);
    for (const part of article.querySelectorAll(":scope > .parts > [data-key]")) {
      this.#elements.set(part.dataset.key, part);
      parts.add(parseKey(part.dataset.key).part, placeOf(part));
    }
  }

  // Puts a message, with its parts, where it was left out.
  fill(article) {
    const { key } = article.dataset;
    const { message } = parseKey(key);
    localTimes(article);
    this.#keepTurn(message, article);
    unbundle(this.article(message));
    this.article(message).replaceWith(article);
    this.#elements.set(key, article);
    this.#collect(message, article);
    this.#settle(message);
  }

  // Puts parts of a message where they were left out, and after them the element of those that still are.
  fillParts(rest, parts) {
    const { message } = parseKey(rest.closest(".msg").dataset.key);
    for (const part of parts) {
      const { key } = part.dataset;
      if (key) {
        localTimes(part);
        this.#elements.get(key)?.remove();
        this.#elements.set(key, part);
        this.#partsOf(message).add(parseKey(key).part, placeOf(part));
      }
      rest.before(part);
    }
    rest.remove();
  }

  // The place of requests, which a page without any does not have.
  #requests() {
    const there = document.getElementById("requests");
    if (there) return there;
    const place = Object.assign(document.createElement("section"), { id: "requests", ariaLabel: "Requests", ariaLive: "polite" });
    this.#rest.before(place);
    return place;
  }

  element(key) {
    return this.#elements.get(key);
  }

  article(message) {
    return this.#elements.get(`message/${message}`);
  }

  // Inserts a block at its position, or replaces the one with its key. Returns its
  // element, and whether it is new.
  put(key, html) {
    const fresh = parse(html);
    if (!fresh) return {};
    localTimes(fresh);
    const old = this.#elements.get(key);
    const k = parseKey(key);
    if (!old && k.kind === "part" && this.#leavesOut(k.message, fresh)) return {};
    if (k.kind === "message") this.#keepTurn(k.message, fresh);
    if (old && k.kind === "message") {
      // A key keeps its position, whatever its value; one that only had parts is new.
      const known = !old.classList.contains("orphan");
      if (known && old.dataset.ord) fresh.dataset.ord = old.dataset.ord;
      renew(old, fresh);
      if (!known) this.#settle(k.message);
      return { element: old, isNew: false };
    }
    this.#elements.set(key, fresh);
    if (old) {
      if (old.dataset.ord) fresh.dataset.ord = old.dataset.ord;
      keep(old, fresh);
      return { element: fresh, isNew: false };
    }
    if (k.kind === "message") this.#insertMessage(k.message, fresh);
    else if (k.kind === "part") this.#insertPart(k, fresh);
    else if (key.startsWith("request/")) this.#requests().append(fresh); // in the order in which they were asked
    else this.#rest.insertBefore(fresh, this.#elements.get(this.#others.add(key)) ?? null);
    return { element: fresh, isNew: true };
  }

  remove(key) {
    const old = this.#elements.get(key);
    if (!old || key === "session") return;
    const k = parseKey(key);
    if (k.kind === "message") {
      if (this.#partsOf(k.message).size > 0) {
        // Its parts remain: they stand without a head, at the first one's position.
        renew(old, orphan(k.message));
        this.#settle(k.message);
        return;
      }
      this.messages.remove(k.message);
      this.#parts.delete(k.message);
    } else if (k.kind === "part") {
      this.#partsOf(k.message).remove(k.part);
    } else if (!key.startsWith("request/")) {
      this.#others.remove(key);
    }
    this.#elements.delete(key);
    old.remove();
    // An element that only held parts goes with the last of them.
    const article = this.article(k.message);
    if (k.kind === "part" && article.classList.contains("orphan")) {
      if (this.#partsOf(k.message).size === 0) this.remove(article.dataset.key);
      else this.#settle(k.message);
    }
  }

  // The state of a message's turn has changed.
  turn(message, html) {
    this.#turns.set(message, html);
    const article = this.article(message);
    const place = article?.querySelector(turnPlace);
    if (!place) return;
    place.innerHTML = html;
    hasTurn(article, place);
  }

  // A message's block without its turn's state gets the known state.
  #keepTurn(message, article) {
    const place = article.querySelector(turnPlace);
    if (!place) return;
    if (place.childElementCount > 0) this.#turns.set(message, place.innerHTML);
    else place.innerHTML = this.#turns.get(message) ?? "";
    hasTurn(article, place);
  }

  #insertMessage(message, article) {
    const next = this.messages.add(message, placeOf(article));
    this.#elements.set(`message/${message}`, article);
    unbundle(this.article(next));
    this.#log.insertBefore(article, next === undefined ? null : this.article(next));
  }

  #insertPart({ message, part }, element) {
    if (!this.article(message)) this.#insertMessage(message, orphan(message));
    const next = this.#partsOf(message).add(part, placeOf(element));
    const article = this.article(message);
    const parts = article.querySelector(":scope > .parts");
    let before = next === undefined ? null : this.#elements.get(`part/${message}/${next}`);
    for (let last; (last = before ? before.previousElementSibling : parts.lastElementChild)?.matches(".later") && precedes(placeOf(element), last.dataset.from); ) before = last;
    parts.insertBefore(element, before);
    if (article.classList.contains("orphan")) this.#settle(message);
  }

  // Whether a part is among those of its message that are left out.
  #leavesOut(message, part) {
    const rest = this.article(message)?.querySelector(":scope > .parts > .later");
    return Boolean(rest) && !precedes(placeOf(part), rest.dataset.from) && !precedes(placeOf(undefined, rest.dataset.to), part.dataset.ord ?? "0.0");
  }

  // Moves a message to its position, or to its first part's if it has
  // none.
  #settle(message) {
    const article = this.article(message);
    if (article.classList.contains("orphan")) article.dataset.ord = this.#partsOf(message).first.join(".");
    const next = this.messages.add(message, placeOf(article));
    const before = next === undefined ? null : this.article(next);
    unbundle(before);
    unbundle(article);
    if (article.nextElementSibling !== before) this.#log.insertBefore(article, before);
  }
}

const turnPlace = ":scope > .head > .turn";

// A message that has a turn is open as that says, and not by what it holds itself.
function hasTurn(article, place) {
  if (place.childElementCount > 0) delete article.dataset.open;
}

// A message of which only parts have arrived.
function orphan(message) {
  const article = document.createElement("article");
  article.className = "msg orphan";
  article.id = `m-${message}`;
  article.dataset.key = `message/${message}`;
  article.append(Object.assign(document.createElement("div"), { className: "parts" }));
  return article;
}

// Puts a message's new head and foot around its parts.
function renew(article, fresh) {
  const parts = article.querySelector(":scope > .parts");
  const opened = openOnes(article.querySelector(":scope > .foot"));
  for (const child of [...article.children]) if (child !== parts) child.remove();
  for (const { name } of [...article.attributes]) article.removeAttribute(name);
  for (const { name, value } of fresh.attributes) article.setAttribute(name, value);
  const head = fresh.querySelector(":scope > .head");
  const foot = fresh.querySelector(":scope > .foot");
  if (head) article.insertBefore(head, parts);
  if (foot) {
    article.append(foot);
    reopen(foot, opened);
  }
}

const openOnes = (element) => (element ? [...element.querySelectorAll("details")].map((d) => d.open) : []);

function reopen(element, opened) {
  element.querySelectorAll("details").forEach((d, i) => {
    if (opened[i] !== undefined) d.open = opened[i];
  });
}

// Replaces an element by a new one, and restores what the reader had unfolded,
// scrolled and focused.
function keep(old, fresh) {
  reopen(fresh, openOnes(old));
  const scrolled = [...old.querySelectorAll(".long")].map((e) => e.scrollTop);
  const focusable = "a, summary, [tabindex]";
  const focused = old.contains(document.activeElement) ? [...old.querySelectorAll(focusable)].indexOf(document.activeElement) : -1;
  old.replaceWith(fresh);
  fresh.querySelectorAll(".long").forEach((e, i) => {
    if (scrolled[i]) e.scrollTop = scrolled[i];
  });
  if (focused >= 0) fresh.querySelectorAll(focusable)[focused]?.focus({ preventScroll: true });
}
