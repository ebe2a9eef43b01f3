// Text that grows. A delta says at which byte it goes on: what is there already is
// left out, and where something is missing the block is fetched whole. Now and then
// it is fetched anyway, so that finished paragraphs become markdown.

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const pieceLength = 4096; // a text node longer than this is left alone: appending copies it
const shownLength = 256 * 1024;

export class Growing {
  #blocks;
  #fetchBlock; // key → html, null if it is gone
  #changed; // called when a block was replaced or text was added
  #pending = new Map(); // element → text to be added with the next frame
  #fetching = new Map(); // key → deltas that came meanwhile
  #state = new WeakMap(); // element → { length, shown, node, since, made }

  constructor(blocks, fetchBlock, changed) {
    this.#blocks = blocks;
    this.#fetchBlock = fetchBlock;
    this.#changed = changed;
  }

  // A block has come whole, or gone: what is being fetched, and what waited for it,
  // is older.
  replaced(key) {
    const waiting = this.#fetching.get(key);
    if (!waiting) return;
    waiting.length = 0;
    waiting.outdated = true;
  }

  append(delta) {
    const waiting = this.#fetching.get(delta.key);
    if (waiting) {
      waiting.push(delta);
      return;
    }
    const element = this.#blocks.element(delta.key);
    if (!element || element.dataset.len === undefined) {
      this.#reload(delta.key, delta);
      return;
    }
    const s = this.#of(element);
    const bytes = encoder.encode(delta.text);
    if (delta.offset > s.length) {
      this.#reload(delta.key, delta);
      return;
    }
    if (delta.offset + bytes.length <= s.length) return;
    const text = delta.offset === s.length ? delta.text : decoder.decode(bytes.subarray(s.length - delta.offset));
    s.length = delta.offset + bytes.length;
    if (s.length <= shownLength) this.#later(element, text);
    s.since += text.length;
    s.whole ||= text.includes("\n\n") || (text.startsWith("\n") && s.ended);
    s.ended = text.endsWith("\n");
    // The longer the text, the more it costs to make it anew.
    const pause = 1500 + s.length / 64;
    if ((s.whole || s.since > 4000) && performance.now() - s.made > pause && !document.hidden && s.length <= shownLength) this.#reload(delta.key);
  }

  #of(element) {
    let s = this.#state.get(element);
    if (!s) {
      s = { length: Number(element.dataset.len), node: null, since: 0, whole: false, ended: false, made: performance.now() };
      this.#state.set(element, s);
    }
    return s;
  }

  // Text is added once a frame, however many deltas come.
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
    if (waiting.outdated) {
      for (const d of waiting) this.append(d);
    } else if (html) {
      const before = this.#blocks.element(key);
      if (before) this.#pending.delete(before);
      this.#blocks.put(key, html);
      this.#changed();
      for (const d of waiting) this.#again(d);
    } // else it is gone, or the server is: a later frame or connection brings it
  }

  // A delta that waited: it fits now, or nothing will before the next event of its key.
  #again(delta) {
    const element = this.#blocks.element(delta.key);
    if (element?.dataset.len !== undefined && delta.offset <= this.#of(element).length) this.append(delta);
  }
}

// Where a part's text goes on.
function tail(part) {
  let last = part.querySelector(".md > .tail:last-child");
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
