// The contents: one entry a turn, with the one in view marked.

import { Order } from "./order.js";

export class Contents {
  #nav = document.getElementById("contents");
  #list = document.getElementById("turns");
  #order = new Order();
  #items = new Map(); // message id → { link, named }
  #current;
  #asked = false;

  constructor() {
    for (const link of this.#list.querySelectorAll("a")) {
      const id = decodeURIComponent(link.hash.slice("#m-".length));
      this.#order.add(id);
      this.#items.set(id, { link, named: link.textContent !== unnamed });
    }
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

  get turns() {
    return this.#order.ids;
  }

  // A message has come: somebody's is a turn, and so is the first of all.
  message(id, article) {
    const turn = article.classList.contains("user") || this.#order.ids.length === 0;
    if (!turn || this.#items.has(id)) return;
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `#m-${id}`;
    link.dir = "auto";
    link.textContent = unnamed;
    item.append(link);
    const next = this.#order.add(id);
    this.#list.insertBefore(item, next === undefined ? null : this.#items.get(next).link.parentElement);
    this.#items.set(id, { link, named: false });
    this.mark();
  }

  // A part has come: the first text of a turn names it.
  part(id, element) {
    const item = this.#items.get(id);
    if (!item || item.named || !element.classList.contains("text") || element.classList.contains("aside")) return;
    const text = (element.querySelector(".md")?.textContent ?? "").slice(0, 400).trim().replace(/\s+/g, " ");
    if (!text) return;
    item.link.textContent = text.length > 80 ? `${text.slice(0, 80)}…` : text;
    item.named = true;
  }

  gone(id) {
    const item = this.#items.get(id);
    if (!item) return;
    item.link.parentElement.remove();
    this.#items.delete(id);
    this.#order.remove(id);
  }

  // The number of the turn in view: found by halves, so that it costs little.
  inView() {
    const { ids } = this.#order;
    let low = 0;
    let high = ids.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const article = document.getElementById(`m-${ids[middle]}`);
      if (article && article.getBoundingClientRect().top > 120) high = middle;
      else low = middle + 1;
    }
    return Math.max(low - 1, 0);
  }

  mark() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      const link = this.#items.get(this.#order.ids[this.inView()])?.link;
      if (link === this.#current) return;
      this.#current?.removeAttribute("aria-current");
      link?.setAttribute("aria-current", "true");
      this.#current = link;
      if (link && getComputedStyle(this.#nav).visibility === "visible") within(this.#nav.querySelector(".sheet"), link);
    });
  }
}

const unnamed = "(no text)";

// Scrolls a box, and nothing around it, so that something in it is seen.
function within(box, element) {
  const outer = box.getBoundingClientRect();
  const inner = element.getBoundingClientRect();
  if (inner.top < outer.top + 48) box.scrollTop += inner.top - outer.top - 48;
  else if (inner.bottom > outer.bottom - 48) box.scrollTop += inner.bottom - outer.bottom + 48;
}
