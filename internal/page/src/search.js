// The search of a session's page: the server is asked, and what it finds is listed beside the session, as on the page that
// it makes of a search for those without this script.

import { reason } from "./reply.js";
import { localTimes } from "./times.js";
import { headers } from "./token.js";

const away = "The server does not answer. Is it there, and are you online?";

export class Search {
  #box = document.getElementById("find");
  #form = this.#box.querySelector("form");
  #input = this.#form.elements.q;
  #state = document.getElementById("find-state");
  #list = document.getElementById("found");
  #more = document.getElementById("found-more");
  #query; // of which the list is; undefined for none
  #next; // address of the next page
  #asking; // the AbortController of what the server is asked now
  #gone = new Set(); // keys that went while it was asked
  #again; // the timer of a search that is made again

  // lead is called with a result's key, and the id of its element, when the reader follows it.
  constructor(lead) {
    const opens = document.querySelector(".to-find");
    opens.addEventListener("click", (e) => {
      e.preventDefault();
      this.open();
    });
    this.#form.addEventListener("submit", (e) => {
      e.preventDefault();
      const query = this.#input.value.trim();
      if (query) this.#search(query, "Searching…");
    });
    this.#input.addEventListener("input", () => this.#input.value === "" && this.#clear());
    this.#more.addEventListener("click", () => this.#goOn());
    this.#list.addEventListener("click", (e) => {
      const link = e.target.closest("a");
      if (!link || e.ctrlKey || e.metaKey || e.shiftKey) return;
      e.preventDefault();
      if (this.#isOver()) this.close();
      lead(link.parentElement.dataset.key, decodeURIComponent(link.hash.slice(1)));
    });
    this.#box.addEventListener("click", (e) => {
      if (!e.target.closest(".shut") && (e.target !== this.#box || !this.#isOver())) return;
      e.preventDefault();
      this.close(opens);
    });
    this.#box.addEventListener("keydown", (e) => {
      if (e.key !== "Escape") return;
      e.preventDefault(); // the words stay
      this.close(opens);
    });
  }

  open() {
    this.#box.classList.add("open");
    this.#input.focus();
    this.#input.select();
  }

  // Hides it, and leaves the focus to an element.
  close(focus) {
    this.#box.classList.remove("open");
    if (location.hash === "#find") history.replaceState(null, "", location.pathname + location.search);
    focus?.focus({ preventScroll: true });
  }

  // Whether it lies over the session, as where there is no room beside it.
  #isOver() {
    return getComputedStyle(this.#box).position === "fixed";
  }

  // A block was changed, or removed: what is shown of it may not be there any more.
  changed(key, removed) {
    if (removed) {
      this.#gone.add(key);
      this.#item(key)?.remove();
    } else if (!this.#asking && !this.#item(key)) return;
    if (this.#query === undefined) return;
    clearTimeout(this.#again);
    this.#again = setTimeout(() => this.#search(this.#query), 300);
  }

  // Nothing is left to search.
  remove() {
    this.#clear();
    this.#box.remove();
    document.querySelector(".to-find").remove();
  }

  #clear() {
    this.#stop();
    this.#query = this.#next = undefined;
    this.#list.replaceChildren();
    this.#more.hidden = true;
    this.#say("");
  }

  #stop() {
    clearTimeout(this.#again);
    this.#asking?.abort();
    this.#asking = undefined;
  }

  #say(text) {
    if (this.#state.textContent !== text) this.#state.textContent = text;
  }

  #item(key) {
    return [...this.#list.children].find((item) => item.dataset.key === key);
  }

  // Searches from the start, for as many as were shown if the same is searched again.
  async #search(query, says) {
    const had = query === this.#query ? this.#list.childElementCount : 0;
    const next = new URL(location.pathname, location.href);
    next.searchParams.set("q", query);
    this.#query = query;
    await this.#ask(next, had, says, () => this.#list.replaceChildren());
  }

  // Goes on with the next page.
  async #goOn() {
    const had = this.#list.childElementCount;
    await this.#ask(this.#next, 1, "Searching on…", () => {});
    (this.#list.children[had]?.firstElementChild ?? this.#input).focus();
  }

  // Asks for pages until there are so many results, and lists them.
  async #ask(next, least, says, clear) {
    this.#stop();
    this.#gone.clear();
    const asking = (this.#asking = new AbortController());
    if (says) this.#say(says);
    const items = [];
    let page;
    do {
      page = await this.#page(next, asking.signal);
      if (asking.signal.aborted) return;
      items.push(...page.items);
      next = page.next;
    } while (next && items.length < least && page.items.length > 0);
    this.#asking = undefined;
    clear();
    this.#list.append(...items.filter((item) => !this.#gone.has(item.dataset.key)));
    localTimes(this.#list);
    this.#next = next;
    this.#more.hidden = next === undefined;
    this.#say(page.says);
  }

  // Reads a page, once the session's index is made: what it says, its results, and the next one's address.
  async #page(at, signal) {
    for (;;) {
      let found;
      try {
        const reply = await fetch(at, { headers: headers(), credentials: "same-origin", cache: "no-store", redirect: "error", signal });
        if (!reply.ok) return { says: await reason(reply), items: [] };
        found = new DOMParser().parseFromString(await reply.text(), "text/html").getElementById("found");
      } catch {
        return { says: away, items: [] };
      }
      const says = found.querySelector(".tally").textContent;
      if (!found.dataset.indexing) {
        const items = [...found.querySelectorAll(".results > li")].map((item) => document.adoptNode(item));
        for (const item of items) item.firstElementChild.href = item.firstElementChild.hash;
        const next = found.querySelector("a[rel=next]")?.getAttribute("href");
        return { says, items, next: next && new URL(next, location.href) };
      }
      this.#say(says);
      await new Promise((done) => setTimeout(done, 500));
      if (signal.aborted) return { says, items: [] };
    }
  }
}
