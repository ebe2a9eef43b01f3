// Keeping to the end: who reads there sees what comes; who reads elsewhere is left
// alone and told how much is new.

const near = 96; // px from the end that count as there

export class Follower {
  #button = document.getElementById("newer");
  #count = 0;
  #sticks = false;
  #last = scrollY;
  #asked = false;

  constructor() {
    this.#sticks = this.#atEnd();
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#button.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => this.changed()).observe(document.getElementById("session"));
  }

  // Something was added at the end.
  added() {
    if (this.#sticks) return;
    this.#count++;
    this.#button.textContent = `${this.#count} new`;
    this.#button.hidden = false;
  }

  // The page may have grown.
  changed() {
    if (!this.#sticks || this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      if (this.#sticks) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    });
  }

  toEnd() {
    this.#sticks = true;
    this.#clear();
    this.changed();
  }

  #atEnd() {
    return document.documentElement.scrollHeight - scrollY - innerHeight < near;
  }

  #scrolled() {
    // What grows below moves the end away but does not scroll: only going up lets go.
    if (this.#atEnd()) {
      this.#sticks = true;
      this.#clear();
    } else if (scrollY < this.#last - 1) {
      this.#sticks = false;
    }
    this.#last = scrollY;
  }

  #clear() {
    this.#count = 0;
    this.#button.hidden = true;
  }
}
