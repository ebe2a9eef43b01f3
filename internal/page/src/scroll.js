// Keeping to the end: who reads there sees what comes; who reads elsewhere is left
// alone and told how much is new. And going to a place within the session.

const near = 96; // px from the end that count as there
const settled = 20; // frames without a move after which a place that is gone to stands
const settles = 120; // frames at most in which it is held in view

export class Follower {
  #button = document.getElementById("newer");
  #count = 0;
  #sticks = false;
  #last = scrollY;
  #asked = false;

  constructor() {
    this.#open();
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#button.addEventListener("click", () => this.toEnd());
    addEventListener("hashchange", () => this.goTo(document.querySelector(":target")));
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
      this.#scrolled(); // a link may have led away, and the event be still to come
      if (this.#sticks) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    });
  }

  toEnd() {
    this.#sticks = true;
    this.clear();
    this.changed();
  }

  // Leads to an element. What is around it is rendered only now and takes another height
  // than was reserved for it, so it is gone to until it stands, or somebody scrolls.
  goTo(element) {
    if (!element) return;
    const begun = new AbortController();
    for (const event of ["wheel", "touchstart", "pointerdown", "keydown", "hashchange"])
      addEventListener(event, () => begun.abort(), { once: true, capture: true, passive: true, signal: begun.signal });
    let frames = 0;
    let stood = 0;
    const step = () => {
      if (begun.signal.aborted) return;
      const from = scrollY;
      element.scrollIntoView({ block: "start", behavior: "instant" });
      this.#scrolled();
      stood = Math.abs(scrollY - from) < 1 ? stood + 1 : 0;
      if (stood < settled && ++frames < settles) requestAnimationFrame(step);
      else begun.abort();
    };
    step();
  }

  // A page is read from where it opens, and kept at its end if all of it is in view. What
  // is in view is rendered only now and takes another height than was reserved for it.
  #open() {
    let frames = 0;
    let stood = 0;
    let height = 0;
    const step = () => {
      const now = document.documentElement.scrollHeight;
      stood = now === height ? stood + 1 : 0;
      height = now;
      if (stood < 3 && ++frames < settles) requestAnimationFrame(step);
      else if (this.#atEnd()) this.#sticks = true;
    };
    requestAnimationFrame(step);
  }

  #atEnd() {
    return document.documentElement.scrollHeight - scrollY - innerHeight < near;
  }

  #scrolled() {
    // What grows below moves the end away but does not scroll: only going up lets go.
    if (this.#atEnd()) {
      this.#sticks = true;
      this.clear();
    } else if (scrollY < this.#last - 1) {
      this.#sticks = false;
    }
    this.#last = scrollY;
  }

  clear() {
    this.#count = 0;
    this.#button.hidden = true;
  }
}
