// The contents: one entry for each turn, with the one in view marked. They follow the log:
// an entry changes, appears and goes with its message.

import { hasClass, messagesIn, unbundle } from "./anchors.js";

const most = 2000; // entries; contentsMax of the first paint
const unnamed = "(no text)";

export class Contents {
  turns = []; // ids of messages, in the log's order
  #nav = document.getElementById("contents");
  #list = document.getElementById("turns");
  #more = document.getElementById("more-turns");
  #log = document.getElementById("log");
  #links = new Map(); // message id → its entry's link; of the first turns only
  #first; // id of the first message, which is a turn whatever its role
  #current;
  #asked = false;

  constructor() {
    for (const link of this.#list.querySelectorAll("a")) this.#links.set(decodeURIComponent(link.hash.slice("#m-".length)), link);
    this.#first = idOf(this.#firstMessage());
    for (const article of messagesIn(this.#log)) if (this.#isTurn(article)) this.turns.push(idOf(article));
    addEventListener("scroll", () => this.mark(), { passive: true });
    document.querySelector(".to-contents").addEventListener("click", (e) => {
      e.preventDefault();
      this.open();
    });
    this.#nav.addEventListener("click", (e) => {
      if (e.target.closest("#turns a")) this.close();
      else if (e.target.closest(".shut") || e.target === this.#nav) {
        e.preventDefault();
        this.close();
      }
    });
    this.#nav.addEventListener("keydown", (e) => e.key === "Escape" && this.close());
    this.mark();
  }

  open() {
    this.#nav.classList.add("open");
    (this.#nav.querySelector("a[aria-current]") ?? this.#nav.querySelector("a"))?.focus();
  }

  close() {
    this.#nav.classList.remove("open");
    if (location.hash === "#contents") history.replaceState(null, "", location.pathname + location.search);
  }

  // Whether the contents may show a part's text.
  shows(message) {
    return this.#links.has(message);
  }

  // A message was added, changed or removed.
  message(id) {
    const first = idOf(this.#firstMessage());
    const before = this.#first;
    this.#first = first;
    for (const each of new Set([before, first, id])) if (each !== undefined) this.#settle(each);
    this.mark();
  }

  // A part was added, changed or removed: the first text of a turn names it.
  part(message) {
    const link = this.#links.get(message);
    if (link) name(link, article(message));
  }

  // Nothing is left to show.
  clear() {
    this.turns = [];
    this.#links.clear();
    this.#nav.remove();
  }

  // Lists a message if it is a turn, and only then.
  #settle(id) {
    const place = article(id);
    const at = this.turns.indexOf(id);
    if (!place || !this.#isTurn(place)) {
      if (at < 0) return;
      this.turns.splice(at, 1);
      this.#drop(id);
      if (this.turns.length >= most && at < most) this.#insert(most - 1);
    } else if (at < 0) {
      let next = place;
      do {
        if (next.nextElementSibling?.matches(".bundle")) unbundle(next.nextElementSibling);
        next = next.nextElementSibling;
      } while (next && !this.#isTurn(next));
      const to = next ? this.turns.indexOf(idOf(next)) : this.turns.length;
      this.turns.splice(to, 0, id);
      if (to < most) this.#insert(to);
      if (this.turns.length > most) this.#drop(this.turns[most]);
    } else this.part(id);
    const more = this.turns.length - most;
    this.#more.textContent = more > 0 ? `and ${more} more ${more === 1 ? "turn" : "turns"}` : "";
  }

  #insert(at) {
    const id = this.turns[at];
    const link = document.createElement("a");
    link.href = `#m-${id}`;
    link.dir = "auto";
    name(link, article(id));
    const item = document.createElement("li");
    item.append(link);
    this.#list.insertBefore(item, this.#list.children[at] ?? null);
    this.#links.set(id, link);
  }

  #drop(id) {
    this.#links.get(id)?.parentElement.remove();
    this.#links.delete(id);
  }

  #firstMessage() {
    return this.#log.querySelector(".msg:not(.orphan)");
  }

  #isTurn(place) {
    return !hasClass(place, "orphan") && (hasClass(place, "user") || idOf(place) === this.#first);
  }

  // The number of the turn in view, by binary search.
  inView() {
    let low = 0;
    let high = this.turns.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const place = article(this.turns[middle]);
      if (place && place.getBoundingClientRect().top > 120) high = middle;
      else low = middle + 1;
    }
    return Math.max(low - 1, 0);
  }

  mark() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      const link = this.#links.get(this.turns[this.inView()]);
      if (link === this.#current) return;
      this.#current?.removeAttribute("aria-current");
      link?.setAttribute("aria-current", "true");
      this.#current = link;
      if (link && getComputedStyle(this.#nav).visibility === "visible") within(this.#nav.querySelector(".sheet"), link);
    });
  }
}

const article = (id) => document.getElementById(`m-${id}`);
const idOf = (place) => place?.id.slice("m-".length);

// Names an entry like the first paint: data-says has the name that a part
// gives.
function name(link, place) {
  let text = unnamed;
  if (place.dataset.says) text = place.dataset.says; // its parts are left out
  for (const part of place.querySelectorAll(":scope > .parts > *")) {
    if (part.dataset.says) {
      text = part.dataset.says;
      break;
    }
    if (part.classList.contains("compaction")) text = "Context compacted";
  }
  if (link.textContent !== text) link.textContent = text;
}

// Scrolls a box, and nothing around it, to show an element in it.
function within(box, element) {
  const outer = box.getBoundingClientRect();
  const inner = element.getBoundingClientRect();
  if (inner.top < outer.top + 48) box.scrollTop += inner.top - outer.top - 48;
  else if (inner.bottom > outer.bottom - 48) box.scrollTop += inner.bottom - outer.bottom + 48;
}
