// Waiting times: exponential, with jitter, so that clients that failed together do not retry together.

import type { Backoff } from "./machine.js";

export interface BackoffSettings {
  initial: number; // milliseconds
  max: number;
  factor: number;
  jitter: number; // the share of the time that is random, to both sides
}

/** A backoff without an end. random gives numbers from 0 to 1. */
export function newBackoff(s: BackoffSettings, random: () => number = Math.random): Backoff {
  let next = s.initial;
  return {
    next() {
      const wait = next;
      next = Math.min(next * s.factor, s.max);
      return wait * (1 + s.jitter * (2 * random() - 1));
    },
    reset() {
      next = s.initial;
    },
  };
}
