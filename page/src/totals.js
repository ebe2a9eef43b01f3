// What the session comes to, kept along: each message counts with its newest numbers.

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export class Totals {
  #place = document.getElementById("totals");
  #of = new Map(); // message id → its numbers
  #sum = { tokens: 0, cost: 0 };

  constructor(articles) {
    for (const article of articles) this.#count(article);
    this.#show();
  }

  message(article) {
    this.#count(article);
    this.#show();
  }

  gone(id) {
    const old = this.#of.get(id);
    if (!old) return;
    this.#of.delete(id);
    this.#sum.tokens -= old.tokens;
    this.#sum.cost -= old.cost;
    this.#show();
  }

  #count(article) {
    const old = this.#of.get(article.id);
    const now = { tokens: number(article.dataset.in) + number(article.dataset.out), cost: number(article.dataset.cost) };
    this.#of.set(article.id, now);
    this.#sum.tokens += now.tokens - (old?.tokens ?? 0);
    this.#sum.cost += now.cost - (old?.cost ?? 0);
  }

  #show() {
    const { tokens, cost } = this.#sum;
    const words = [];
    if (tokens > 0) words.push(`${compact.format(tokens)} tokens`);
    if (cost > 0.00005) words.push(`$${cost.toFixed(cost < 0.1 ? 4 : 2)}`);
    const text = words.join(" · ");
    if (this.#place.textContent !== text) this.#place.textContent = text;
  }
}

function number(text) {
  const n = Number(text ?? 0);
  return Number.isFinite(n) ? n : 0;
}
