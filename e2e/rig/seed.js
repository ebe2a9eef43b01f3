// Random choices by a seed that a failure can be run with again.

import { firstSeed, numbers } from "../../clients/js/dist/test/seed.js";

/** Choices by the seed in SEED, or by a new one if there is none or it is 0; it is told in the test's output. */
export function choices(t) {
  const seed = firstSeed();
  t.diagnostic(`SEED=${seed}`);
  const next = numbers(seed);
  const below = (n) => Math.floor(next() * n);
  return { below, of: (list) => list[below(list.length)], chance: (p) => next() < p };
}
