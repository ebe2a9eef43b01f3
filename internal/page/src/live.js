// The live stream from an event on, over one link after another. Each resumes at the last event whose hash was received; events
// after that are sent again, which changes nothing. It is a WebSocket first, of which browsers allow hundreds; if a proxy
// blocks those, server-sent events, of which they allow six over all tabs.

import { backoff, jitter, seconds } from "./fetch.js";
import { serverSent, webSocket } from "./link.js";

const silence = 50_000; // ms without anything after which a link counts as dead
const opening = 10_000; // ms in which a WebSocket has to send something

// frames are handlers by event; state(name, text) is called with the connection's state, over(title, message) with the final reason.
export function follow({ url, cursor, hash, frames, state, over: ended, reached }) {
  let close = () => {}; // the present link
  let attempt = 0;
  let timer; // until the next link
  let watch;
  let over = false;
  let sockets = true; // no WebSocket has hung yet

  let from = { cursor, hash }; // the last event whose hash was received: a restored server has other events there
  const seen = (at) => {
    if (at > cursor) reached((cursor = at));
  };
  const stop = () => {
    over = true;
    clearTimeout(timer);
    clearTimeout(watch);
    close();
  };
  const later = (ms, name, text) => {
    clearTimeout(watch);
    close();
    close = () => {};
    state(name, text);
    timer = setTimeout(connect, ms);
  };
  const reconnect = () => later(jitter(1000), "reconnecting", "Reconnecting…");

  function onEvent({ id, event, data }) {
    if (over) return;
    try {
      (own[event] ?? frames[event])?.(JSON.parse(data));
    } catch (err) {
      reportError(err); // later events are shown all the same
    }
    if (id) seen(Number(id));
  }
  const own = {
    at(position) {
      from = position;
      seen(Number(position.cursor));
    },
    caught(position) {
      own.at(position);
      state("live", "Live, caught up");
    },
    reload() {
      // The stream cannot resume from here: the page is loaded again, not too often.
      stop();
      state("reconnecting", "Loading the page anew…");
      setTimeout(() => location.reload(), again());
    },
    over({ title, code, message }) {
      stop();
      ended(title ?? words(code), message ?? "");
    },
  };

  // Opens a link; `failed` is called instead of retrying if it ends before anything has arrived.
  function openLink(link, within, failed) {
    let first = true;
    const dead = () => {
      close();
      if (first) failed("hung");
      else reconnect();
    };
    watch = setTimeout(dead, within);
    const at = new URL(url);
    at.searchParams.set("after", String(from.cursor));
    if (from.hash) at.searchParams.set("hash", from.hash);
    close = link(at, {
      onEvent,
      onBytes() {
        if (over) return;
        clearTimeout(watch);
        watch = setTimeout(dead, silence);
        if (!first) return;
        first = false;
        attempt = 0;
        state("connecting", "Catching up…");
      },
      onEnd(how, status) {
        if (over) return;
        clearTimeout(watch);
        if (first) failed(how, status);
        else reconnect();
      },
    });
  }

  function connect() {
    clearTimeout(timer);
    timer = undefined;
    if (over) return;
    if (!sockets) return events();
    openLink(webSocket, opening, (how) => {
      sockets = how !== "hung";
      events();
    });
  }
  function events() {
    openLink(serverSent, silence, (how, status) => {
      if (how !== "refused") return reconnect();
      const wait = backoff(attempt++);
      later(wait, "waiting", `No answer (${status}); trying again in ${seconds(wait)} s`);
    });
  }

  const soon = () => timer !== undefined && connect();
  window.addEventListener("online", soon);
  document.addEventListener("visibilitychange", () => document.hidden || soon());
  state("connecting", "Connecting…");
  connect();
}

// How long to wait before the page is loaded again: not at all, or a while if that has
// just happened.
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
