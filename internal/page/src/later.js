// What the first paint has left out: messages, and the further parts of a long one. Each is an empty element in its place,
// which is filled when it comes near the window, or is wanted for another reason: a link leads there, or it changes.

import { parseKey, unbundle } from "./anchors.js";
import { backoff } from "./fetch.js";

const most = 20; // messages asked for at once

export class Later {
  #log = document.getElementById("log");
  #note = document.getElementById("all");
  #blocks;
  #fetch; // address → elements
  #filled; // called with keys that are there now, and the elements that took their place before
  #left = new Set(); // elements that are not filled
  #wanted = new Map(); // of those: element → { done, resolve }, in the order in which they are asked for
  #held = new Map(); // message id → what to do with its frames once it is filled, in order
  #asking = false;
  #asked = false; // to look, with the next frame
  #attempt = 0;
  #over = false;

  constructor(blocks, { fetchMore, filled }) {
    this.#blocks = blocks;
    this.#fetch = fetchMore;
    this.#filled = filled;
    for (const element of this.#log.getElementsByClassName("later")) this.#left.add(element);
    if (this.#left.size === 0) return;
    this.#log.before(this.#note);
    for (const event of ["scroll", "resize"]) addEventListener(event, () => this.look(), { passive: true });
    new ResizeObserver(() => this.look()).observe(this.#log);
  }

  // Whether a key may be of what is left out.
  lacks(key) {
    const { message, part } = parseKey(key);
    const article = this.#blocks.article(message);
    return article !== undefined && (this.#left.has(article) || (part !== undefined && !this.#blocks.element(key) && this.#rest(article) !== null));
  }

  // Loads what a key is in, if it is left out; the promise is kept when it is there, or is known not to be.
  async reach(key) {
    const { message } = parseKey(key);
    while (!this.#over && this.lacks(key)) {
      const article = this.#blocks.article(message);
      await this.#want(this.#left.has(article) ? article : this.#rest(article), true);
    }
  }

  // Does something with a message now, or, where it is left out or being loaded, once it is there: what is loaded may be
  // older than a change that comes meanwhile, and a change that is repeated changes nothing.
  after(message, act) {
    const held = this.#held.get(message);
    if (held) return held.push(act);
    const article = this.#blocks.article(message);
    if (!article || !this.#left.has(article)) return act();
    this.#held.set(message, [act]);
    this.#want(article, true);
  }

  stop() {
    this.#over = true;
    for (const { resolve } of this.#wanted.values()) resolve();
  }

  // Looks with the next frame for what is near the window.
  look() {
    if (this.#asked || this.#left.size === 0) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      const [from, to] = [-innerHeight, 2 * innerHeight];
      const all = this.#log.children;
      let low = 0;
      let high = all.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (all[middle].getBoundingClientRect().bottom < from) low = middle + 1;
        else high = middle;
      }
      for (let article = all[low]; article && article.getBoundingClientRect().top < to; article = article.nextElementSibling) {
        if (article.matches(".bundle")) {
          unbundle(article);
          return this.look();
        }
        const element = this.#left.has(article) ? article : this.#rest(article);
        if (!element) continue;
        const { top, bottom } = element.getBoundingClientRect();
        if (bottom > from && top < to) this.#want(element);
      }
    });
  }

  #rest(article) {
    return article.querySelector(":scope > .parts > .later");
  }

  #want(element, first) {
    let wanted = this.#wanted.get(element);
    if (!wanted) {
      wanted = {};
      wanted.done = new Promise((resolve) => (wanted.resolve = resolve));
      this.#wanted.set(element, wanted);
    }
    if (first) {
      this.#wanted.delete(element);
      this.#wanted = new Map([[element, wanted], ...this.#wanted]);
    }
    this.#ask();
    return wanted.done;
  }

  // Asks for what is wanted, one piece after the other.
  async #ask() {
    if (this.#asking || this.#over) return;
    this.#asking = true;
    while (this.#wanted.size > 0 && !this.#over) {
      const [first] = this.#wanted.keys();
      const asked = first.matches(".msg") ? [...this.#wanted.keys()].filter((element) => element.matches(".msg")).slice(0, most) : [first];
      const messages = asked.map((element) => parseKey(element.closest(".msg").dataset.key).message);
      for (const message of messages) if (!this.#held.has(message)) this.#held.set(message, []);
      const { from, to } = first.dataset;
      try {
        const got = await this.#fetch({ messages, from, to });
        this.#attempt = 0;
        if (!this.#over) this.#fill(asked, got);
      } catch {
        await new Promise((done) => setTimeout(done, backoff(this.#attempt++)));
      }
    }
    this.#asking = false;
  }

  // Puts what was got where it belongs. As many came as fit into a piece, the first one always, if it is still there.
  #fill(asked, got) {
    const [first] = asked;
    if (!first.matches(".msg")) {
      const article = first.closest(".msg");
      this.#blocks.fillParts(first, got);
      this.#done(first, article, got);
      return;
    }
    const articles = new Map(got.map((article) => [article.dataset.key, article]));
    for (const element of asked) {
      const article = articles.get(element.dataset.key);
      if (article) this.#blocks.fill(article);
      else if (element === first) this.#blocks.remove(element.dataset.key);
      else continue; // it is still wanted
      this.#done(element, article, article ? [article, ...article.querySelectorAll(":scope > .parts > *")] : []);
    }
  }

  #done(element, article, fresh) {
    this.#left.delete(element);
    for (const each of fresh) if (each.matches(".later")) this.#left.add(each);
    const key = article?.dataset.key ?? element.dataset.key;
    this.#filled({ was: element, now: fresh.filter((each) => each.dataset.key), rest: fresh.filter((each) => each.matches(".later")), key });
    this.#wanted.get(element)?.resolve();
    this.#wanted.delete(element);
    const { message } = parseKey(key);
    const held = this.#held.get(message) ?? [];
    this.#held.delete(message);
    for (const act of held) {
      try {
        act();
      } catch (err) {
        reportError(err); // what comes after it is shown all the same
      }
    }
    if (this.#left.size === 0) this.#note.remove();
    else this.look();
  }
}
