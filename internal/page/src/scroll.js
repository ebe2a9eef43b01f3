// Following the end: readers at the end see new content; readers elsewhere are left
// alone, and shown how much is new. And going to a position within the session.

const near = 96; // px from the end that count as the end
const settled = 20; // frames without a move after which a target has settled
const settles = 120; // frames at most in which a target is followed

export class Follower {
  #button = document.getElementById("newer");
  #count = 0;
  #sticks = false;
  #last = scrollY;
  #asked = false;

  constructor() {
    this.#open();
    if (document.readyState === "complete") this.#opened();
    else addEventListener("load", () => this.#opened(), { once: true });
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
      this.#scrolled(); // a link may have moved the view, and its event be still to come
      if (this.#sticks) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
    });
  }

  toEnd() {
    this.#sticks = true;
    this.clear();
    this.changed();
  }

  // Scrolls to an element. What is around it is rendered only now and gets another height
  // than was reserved, so scrolling is repeated until it has settled, or somebody scrolls.
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

  // A link that opens the page leads to its place. The browser has led there, and may have missed it, as what is above gets
  // another height only then. Who has scrolled elsewhere meanwhile stays there.
  #opened() {
    const element = document.querySelector(":target");
    if (element && Math.abs(element.getBoundingClientRect().top) < innerHeight) this.goTo(element);
  }

  // A page stays where it opens, and at its end if all of it is in view. What
  // is in view is rendered only now and gets another height than was reserved.
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
    // Growth below moves the end without scrolling: only scrolling up stops following.
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
