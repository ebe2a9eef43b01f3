// A note for sessions that an agent syncs here: nothing has come for long, though something is running that would
// send. The server does not learn that an agent was killed.

import { localTimes } from "./times.js";

export class Silence {
  #note = document.getElementById("silent"); // only if there is one
  #heard;

  constructor() {
    if (!this.#note) return;
    this.#heard = performance.now() - Number(this.#note.dataset.silence);
    localTimes(this.#note);
    this.#look();
    setInterval(() => this.#look(), 1000);
  }

  // Something has changed.
  heard() {
    if (!this.#note) return;
    this.#heard = performance.now();
    this.#look();
  }

  #look() {
    const silence = performance.now() - this.#heard;
    const hidden = silence <= Number(this.#note.dataset.lease) || !works();
    if (hidden === this.#note.hidden) return;
    if (!hidden) {
      const time = this.#note.querySelector("time");
      time.dateTime = new Date(Date.now() - silence).toISOString();
      localTimes(this.#note);
    }
    this.#note.hidden = hidden;
  }
}

// The same rule as in package page: a tool call, or the last answer, is unfinished.
function works() {
  if (document.querySelector("#log .tool.running, #log .tool.pending")) return true;
  const last = document.querySelector("#log > .msg:last-child");
  return last !== null && last.classList.contains("assistant") && !last.dataset.ended && !last.querySelector(":scope > .foot > .error");
}
