// Growing text. A delta has the byte offset at which it continues: known bytes are
// left out, and if some are missing the block is fetched whole. From time to time
// it is fetched anyway, so that finished paragraphs become markdown.

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const pieceLength = 4096; // longer text nodes are not appended to, since appending copies them
const shownLength = 256 * 1024;
const namesLength = 1024; // the beginning of a turn's text that can name it

export class Growing {
  #blocks;
  #fetchBlock; // key → html, null if it is gone
  #put; // inserts a fetched block at its position
  #named; // whether a block's text names its turn
  #changed; // called when text was added
  #pending = new Map(); // element → text to be added with the next frame
  #fetching = new Map(); // key → deltas that came during the fetch
  #state = new WeakMap(); // element → its length, and whether it is to be fetched again

  constructor(blocks, { fetchBlock, put, named, changed }) {
    this.#blocks = blocks;
    this.#fetchBlock = fetchBlock;
    this.#put = put;
    this.#named = named;
    this.#changed = changed;
  }

  // A block was put whole, or removed: a running fetch, and the deltas that wait for it,
  // are older.
  replaced(key) {
    const waiting = this.#fetching.get(key);
    if (!waiting) return;
    waiting.length = 0;
    waiting.outdated = true;
  }

  // A block has another value, by an event that does not have it whole. A running fetch may be
  // older; changes that come during one are fetched together, a while later. What it gives is done
  // when a fetch that this began is.
  refetch(key) {
    const waiting = this.#fetching.get(key);
    if (!waiting) return this.#reload(key);
    waiting.again = true;
  }

  append(delta) {
    const waiting = this.#fetching.get(delta.key);
    if (waiting) {
      waiting.push(delta);
      return;
    }
    const element = this.#blocks.element(delta.key);
    if (!element) {
      this.#reload(delta.key, delta);
      return;
    }
    if (element.dataset.len === undefined) return; // it does not show its text
    const s = this.#of(element);
    const bytes = encoder.encode(delta.text);
    if (delta.offset > s.length) {
      this.#reload(delta.key, delta);
      return;
    }
    if (delta.offset + bytes.length <= s.length) return;
    // Its content is whole paragraphs: the text may continue in the last one. A part of an
    // unknown kind shows its text twice.
    s.whole ||= (s.length > 0 && !element.querySelector(tailPlace)) || element.classList.contains("unknown");
    const text = delta.offset === s.length ? delta.text : decoder.decode(bytes.subarray(s.length - delta.offset));
    s.length = delta.offset + bytes.length;
    if (s.length <= shownLength) this.#later(element, text);
    s.since += text.length;
    s.whole ||= text.includes("\n\n") || (text.startsWith("\n") && s.ended) || s.since > 4000;
    s.names ||= s.length - bytes.length < namesLength;
    s.ended = text.endsWith("\n");
    if ((s.whole || (s.names && this.#named(delta.key))) && s.length <= shownLength) this.#renew(delta.key, element);
  }

  // The block's text names its turn now, with what was appended.
  named(key, element) {
    if (this.#state.get(element)?.names) this.#renew(key, element);
  }

  // Has a block fetched again, now or later: the longer its text, the more that
  // costs.
  #renew(key, element) {
    const s = this.#of(element);
    if (s.due) return;
    const wait = s.made + 1500 + s.length / 64 - performance.now();
    const now = () => {
      s.due = false;
      if (this.#blocks.element(key) === element && !this.#fetching.has(key)) this.#reload(key);
    };
    s.due = true;
    if (wait > 0) setTimeout(() => whenSeen(now), wait);
    else whenSeen(now);
  }

  #of(element) {
    let s = this.#state.get(element);
    if (!s) {
      s = { length: Number(element.dataset.len), node: null, since: 0, whole: false, names: false, ended: false, due: false, made: performance.now() };
      this.#state.set(element, s);
    }
    return s;
  }

  // Text is added once per frame, however many deltas come.
  #later(element, text) {
    if (this.#pending.size === 0) {
      if (document.hidden) setTimeout(() => this.#flush(), 250);
      else requestAnimationFrame(() => this.#flush());
    }
    this.#pending.set(element, (this.#pending.get(element) ?? "") + text);
  }

  #flush() {
    const all = [...this.#pending];
    this.#pending.clear();
    for (const [element, text] of all) {
      const s = this.#of(element);
      if (!s.node || !s.node.isConnected || s.node.length > pieceLength) {
        s.node = document.createTextNode("");
        tail(element).append(s.node);
      }
      s.node.appendData(text);
    }
    this.#changed();
  }

  async #reload(key, delta) {
    const waiting = delta ? [delta] : [];
    this.#fetching.set(key, waiting);
    let html;
    for (let attempt = 0; html === undefined && attempt < 6; attempt++) {
      try {
        html = await this.#fetchBlock(key);
      } catch {
        await new Promise((done) => setTimeout(done, 500 * 2 ** attempt));
      }
    }
    this.#fetching.delete(key);
    if (waiting.again) setTimeout(() => this.refetch(key), 300);
    if (waiting.outdated) {
      for (const d of waiting) this.append(d);
    } else if (html) {
      const before = this.#blocks.element(key);
      if (before) this.#pending.delete(before);
      this.#put({ key, html });
      for (const d of waiting) this.#again(d);
    } // or it was removed, or the server is unreachable: a later frame or connection brings it
  }

  // A delta that waited: it fits now, or the next event of its key decides.
  #again(delta) {
    const element = this.#blocks.element(delta.key);
    if (element?.dataset.len !== undefined && delta.offset <= this.#of(element).length) this.append(delta);
  }
}

// Runs a function when the page is visible.
function whenSeen(act) {
  if (document.hidden) document.addEventListener("visibilitychange", () => whenSeen(act), { once: true });
  else act();
}

const tailPlace = ".md > .tail:last-child";

// The offset at which a part's text continues.
function tail(part) {
  let last = part.querySelector(tailPlace);
  if (!last) {
    last = document.createElement("div");
    last.className = "tail";
    let text = part.querySelector(".md");
    if (!text) {
      text = document.createElement("div");
      text.className = "md";
      text.dir = "auto";
      part.append(text);
    }
    text.append(last);
  }
  return last;
}
