// Waiting for what comes about, with a deadline that a slow machine keeps.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";

const deadline = 60_000;

/**
 * Asks until the answer is true-ish and gives it. An answer that throws counts as not yet, and is what a failure tells.
 * @param what says in a failure what was waited for
 */
export async function until(what, ask, within = deadline) {
  const end = Date.now() + within;
  for (;;) {
    let why;
    try {
      const answer = await ask();
      if (answer) return answer;
    } catch (err) {
      why = err;
    }
    if (Date.now() > end) assert.fail(`${what}: not within ${within / 1000} s${why ? `: ${why.message}` : ""}`);
    await pause(50);
  }
}
