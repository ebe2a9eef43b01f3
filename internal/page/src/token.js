// The token of this page, used instead of the ref's secret. It is in sessionStorage, which belongs to this tab and
// this server with its port; the browser never sends it by itself. Other tabs of the same server get it when they
// ask; pages of other ports and sites do not.

const prefix = "mooring-token:";
const name = prefix + page(location.pathname);
const tabs = new BroadcastChannel("mooring-pages");
let inMemory; // if there is no storage

// The path of the page that a token is for: below /sessions, and below a ref's session, it is the one above.
export function page(path) {
  return /^(.*\/(?:sessions|s\/[^/]+))(?:\/.*)?$/.exec(path)?.[1] ?? path;
}

// Reports whether this is the page that its token is for, and not one below.
export function ownPage() {
  return page(location.pathname) === location.pathname;
}

export function token() {
  return stored(name) ?? inMemory;
}

export function keep(text) {
  inMemory = text;
  try {
    sessionStorage.setItem(name, text);
  } catch {
    // Then it lasts as long as the page.
  }
}

export function drop() {
  inMemory = undefined;
  try {
    sessionStorage.removeItem(name);
  } catch {
    // There was nothing stored.
  }
}

// The headers of a request under the token.
export function headers(more = {}) {
  const shown = token();
  return shown === undefined ? more : { ...more, "Mooring-Token": shown };
}

// Answers tabs that ask, and leaves the page when another tab ends its token.
export function shareToken() {
  tabs.onmessage = ({ data }) => {
    if (typeof data?.ask === "string" && data.ask.startsWith(prefix)) {
      const kept = data.ask === name ? token() : stored(data.ask);
      if (kept) tabs.postMessage({ name: data.ask, token: kept });
    }
    if (data?.end === name && data.token === token()) leave();
    answered?.(data);
  };
}
let answered;

// The token of the space's sessions, which this tab may have, or another of this server.
export async function spaceToken() {
  const of = `${prefix}${document.body.dataset.base ?? ""}/sessions`;
  return stored(of) ?? (await askTabs(of));
}

// Asks the other tabs for a token, this page's or another's, and waits briefly.
export function askTabs(of = name) {
  return new Promise((resolve) => {
    const end = setTimeout(() => resolve(undefined), 400);
    answered = (data) => {
      if (data?.name !== of || typeof data.token !== "string") return;
      clearTimeout(end);
      resolve(data.token);
    };
    tabs.postMessage({ ask: of });
  }).finally(() => (answered = undefined));
}

// Removes the token in all tabs; the server has ended it.
export function endToken() {
  tabs.postMessage({ end: name, token: token() });
  leave();
}

function leave() {
  drop();
  location.replace(page(location.pathname));
}

function stored(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return undefined;
  }
}

// This browser's redemption id: a ref that may be used so often counts a browser once, or a page if the browser stores
// nothing. It opens nothing by itself.
export function browserId() {
  const key = "mooring-browser";
  try {
    const id = localStorage.getItem(key);
    if (id) return id;
    localStorage.setItem(key, newId);
  } catch {
    // It is this page's alone.
  }
  return newId;
}
const newId = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
