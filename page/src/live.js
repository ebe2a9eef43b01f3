// The live stream: server-sent events from a cursor on. The browser connects again
// by itself, with the last id; where it gives up (an HTTP error), or where nothing
// comes any more, this does.

const silence = 50_000; // ms without any event after which a link counts as dead

// frames are handlers by event; state(name, text) is told how it goes.
export function follow({ url, cursor, frames, state, reached }) {
  let source;
  let attempt = 0;
  let timer;
  let watch;
  let over = false;

  const heard = () => {
    clearTimeout(watch);
    watch = setTimeout(() => {
      source?.close();
      state("reconnecting", "Reconnecting…");
      connect();
    }, silence);
  };
  const seen = (event) => {
    heard();
    const id = Number(event.lastEventId);
    if (event.lastEventId && id > cursor) {
      cursor = id;
      reached(cursor);
    }
  };
  const stop = () => {
    over = true;
    clearTimeout(timer);
    clearTimeout(watch);
    source?.close();
  };

  function connect() {
    clearTimeout(timer);
    if (over) return;
    source?.close();
    const at = new URL(url, location.href);
    at.searchParams.set("after", String(cursor));
    source = new EventSource(at);
    heard();
    source.onopen = () => {
      attempt = 0;
      heard();
      state("connecting", "Catching up…");
    };
    source.onerror = () => {
      if (over) return;
      if (source.readyState === EventSource.CONNECTING) {
        state("reconnecting", "Reconnecting…");
        return;
      }
      clearTimeout(watch);
      const wait = Math.min(1000 * 2 ** attempt++, 30_000) * (0.75 + Math.random() / 2);
      state("waiting", `No answer; trying again in ${Math.max(1, Math.round(wait / 1000))} s`);
      timer = setTimeout(connect, wait);
    };
    for (const [name, handle] of Object.entries(frames)) {
      source.addEventListener(name, (event) => {
        handle(JSON.parse(event.data));
        seen(event);
      });
    }
    source.addEventListener("caught", (event) => {
      seen(event);
      const at = Number(JSON.parse(event.data).cursor);
      if (at > cursor) reached((cursor = at));
      state("live", "Live, caught up");
    });
    source.addEventListener("reload", () => {
      // What is here cannot be gone on from: the page is painted anew, not too often.
      stop();
      state("reconnecting", "Loading the page anew…");
      setTimeout(() => location.reload(), again());
    });
    source.addEventListener("over", (event) => {
      stop();
      const { title, code, message } = JSON.parse(event.data);
      state("over", [title ?? words(code), message].filter(Boolean).join(": "));
    });
  }

  const soon = () => {
    if (!over && source.readyState === EventSource.CLOSED) connect();
  };
  window.addEventListener("online", soon);
  document.addEventListener("visibilitychange", () => document.hidden || soon());
  state("connecting", "Connecting…");
  connect();
}

// How long to wait before the page is loaded anew: nothing, or a while if that was
// done just now.
function again() {
  try {
    const last = Number(sessionStorage.getItem("mooring-reload") ?? 0);
    sessionStorage.setItem("mooring-reload", String(Date.now()));
    return Date.now() - last < 15_000 ? 15_000 : 0;
  } catch {
    return 15_000;
  }
}

function words(code) {
  switch (code) {
    case "revoked":
    case "stale_epoch":
      return "Revoked";
    case "expired":
      return "Expired";
    case "session_deleted":
      return "Deleted";
  }
  return "Over";
}
