// The session's totals, kept current: in the bar, and as the facts below the
// contents, which the first paint has in the same words (internal/page/contents.go, internal/page/internal/markup/numbers.go).

import { hasClass, messagesIn } from "./anchors.js";

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export class Totals {
  #bar = document.getElementById("totals");
  #facts = document.getElementById("facts");
  #messages = new Map(); // message id → its numbers
  #tools = new Set(); // keys of parts that are tool calls
  #left = new Set(); // elements of what is left out
  #asked = false;
  #shown;

  constructor(log) {
    for (const article of messagesIn(log)) {
      this.message(article.id.slice("m-".length), article);
      if (!article.firstChild) continue; // it is left out
      for (const part of article.querySelectorAll(":scope > .parts > [data-key]")) this.part(part.dataset.key, part);
    }
    for (const element of log.getElementsByClassName("later")) this.leftOut(element);
  }

  // A message was added or changed, or was removed or lost its head.
  message(id, article) {
    if (!article || hasClass(article, "orphan")) this.#messages.delete(id);
    else this.#messages.set(id, numbers(article));
    this.#soon();
  }

  // A part was added, changed or removed.
  part(key, element) {
    if (element?.classList.contains("tool")) this.#tools.add(key);
    else this.#tools.delete(key);
    this.#soon();
  }

  // Something is left out, or is not any more.
  leftOut(element, there = true) {
    if (there) this.#left.add(element);
    else this.#left.delete(element);
    this.#soon();
  }

  clear() {
    this.#messages.clear();
    this.#tools.clear();
    this.#left.clear();
    this.#bar.textContent = "";
  }

  // Summed up once per frame, whatever comes: a running sum would not
  // be equal to one that is computed again.
  #soon() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#show();
    });
  }

  #show() {
    const sum = { turns: 0, in: 0, out: 0, reasoning: 0, cost: 0, first: 0, last: 0 };
    for (const m of this.#messages.values()) {
      sum.turns += m.user ? 1 : 0;
      for (const name of ["in", "out", "reasoning", "cost"]) sum[name] += m[name];
      if (m.began > 0 && (sum.first === 0 || m.began < sum.first)) sum.first = m.began;
      sum.last = Math.max(sum.last, m.began, m.ended);
    }
    const words = [];
    if (sum.in + sum.out > 0) words.push(`${compact.format(sum.in + sum.out)} tokens`);
    if (sum.cost > 0.00005) words.push(`$${sum.cost.toFixed(sum.cost < 0.1 ? 4 : 2)}`);
    this.#bar.textContent = words.join(" · ");
    this.#tell(sum);
  }

  #tell(sum) {
    const made = sum.out + sum.reasoning;
    const facts = [["Turns", String(sum.turns)], ["Messages", String(this.#messages.size)], ["Tool calls", `${this.#tools.size}${this.#left.size > 0 ? " of what is loaded" : ""}`]];
    if (sum.in !== 0 || made !== 0) facts.push(["Tokens in", count(sum.in)], ["Tokens out", count(made)]);
    facts.push(["Cost", cost(sum.cost)], ["From first to last", span(sum.first, sum.last)]);
    const text = JSON.stringify(facts);
    if (text === this.#shown) return;
    this.#shown = text;
    this.#facts.replaceChildren(
      ...facts
        .filter(([, value]) => value)
        .map(([name, value]) => {
          const row = document.createElement("div");
          for (const [tag, words] of [["dt", name], ["dd", value]]) row.append(Object.assign(document.createElement(tag), { textContent: words }));
          return row;
        }),
    );
  }
}

function numbers(article) {
  const of = (attribute) => {
    const n = Number(article.getAttribute(attribute)); // 0 if it is not there
    return Number.isFinite(n) ? n : 0;
  };
  return { user: hasClass(article, "user"), in: of("data-in"), out: of("data-out"), reasoning: of("data-reasoning"), cost: of("data-cost"), began: of("data-began"), ended: of("data-ended") };
}

function count(n) {
  return n < 0 || n >= 1e15 ? Number(n.toPrecision(4)).toExponential() : Math.round(n).toLocaleString("en-US");
}

function cost(n) {
  const size = Math.abs(n);
  if (n === 0) return "";
  if (size >= 1e9) return `$${Number(n.toPrecision(4)).toExponential()}`;
  if (size < 0.0001) return "<$0.0001";
  return `$${n.toFixed(size < 0.1 ? 4 : 2)}`;
}

function span(from, to) {
  if (from === 0 || to < from) return "";
  const ms = to - from;
  const s = Math.floor(ms / 1000);
  if (ms < 1000) return `${ms} ms`;
  if (s < 60) return `${(Math.floor((ms + 50) / 100) / 10).toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
}
