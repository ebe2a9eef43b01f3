// Random numbers by a seed that a failure can be run with again.

import type { TestContext } from "node:test";

/** Numbers from 0 to 1 by a seed (mulberry32). */
export function numbers(seed: number): () => number {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The seed in SEED, or a new one if there is none or it is 0. */
export function firstSeed(): number {
  return Number(process.env["SEED"]) || Math.floor(Math.random() * 2 ** 31);
}

/** Numbers by that seed; it is told in the test's output. */
export function seeded(t: TestContext): () => number {
  const seed = firstSeed();
  t.diagnostic(`SEED=${seed}`);
  return numbers(seed);
}
