// A request whose answer has to begin in time, in ms; then it fails as one does that reaches no server.

const patience = 30_000;

export async function fetchInTime(url, options) {
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), patience);
  try {
    return await fetch(url, { ...options, signal: late.signal });
  } finally {
    clearTimeout(timer); // the rest of the answer takes as long as it takes
  }
}
