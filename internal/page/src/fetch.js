// Requests that are made again: how long each may take, and how long it is until the next.

const patience = 30_000; // ms until an answer has to begin

// Fails as a request that reaches no server if no answer begins in time.
export async function fetchInTime(url, options) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), patience);
  try {
    return await fetch(url, { ...options, signal: late.signal });
  } finally {
    clearTimeout(timer); // the rest of the answer takes as long as it takes
  }
}

// How long to wait, in ms, before the next request after so many that failed: longer each time.
export const backoff = (failures) => jitter(Math.min(1000 * 2 ** failures, 30_000));

export const jitter = (ms) => ms * (0.75 + Math.random() / 2);

// A time to wait, in whole seconds, as people are told it.
export const seconds = (ms) => Math.max(1, Math.round(ms / 1000));
