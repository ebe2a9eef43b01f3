// One link to a live stream, over a WebSocket or as server-sent events, with the same bytes. onEvent is called with every
// event, onBytes when anything arrives, and onEnd once, with how it ended: "cut", or "refused" with the HTTP status.
// The returned function closes the link, after which no callback is called.

import { headers, token } from "./token.js";

export function webSocket(url, { onEvent, onBytes, onEnd }) {
  const at = new URL(url);
  at.protocol = at.protocol === "https:" ? "wss:" : "ws:";
  let socket;
  try {
    socket = new WebSocket(at);
  } catch {
    queueMicrotask(() => onEnd("cut"));
    return () => {};
  }
  const events = reader(onEvent);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => token() !== undefined && socket.send(token());
  socket.onmessage = ({ data }) => {
    onBytes();
    events(new Uint8Array(data));
  };
  socket.onclose = () => onEnd("cut");
  return () => {
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
  };
}

export function serverSent(url, { onEvent, onBytes, onEnd }) {
  const gone = new AbortController();
  (async () => {
    const reply = await fetch(url, { headers: headers({ Accept: "text/event-stream" }), credentials: "same-origin", cache: "no-store", signal: gone.signal });
    if (!reply.ok) {
      reply.body?.cancel();
      return ["refused", reply.status];
    }
    const events = reader(onEvent);
    for (const pieces = reply.body.getReader(); ; ) {
      const { value, done } = await pieces.read();
      if (done || gone.signal.aborted) return ["cut"];
      onBytes();
      events(value);
    }
  })()
    .catch(() => ["cut"])
    .then((how) => gone.signal.aborted || onEnd(...how));
  return () => gone.abort();
}

// Parses events ({ id, event, data }, strings) from pieces of bytes. The server writes one line of data per event, and line
// feeds only. An event that only advances the id has no name.
function reader(onEvent) {
  const decoder = new TextDecoder();
  let open = ""; // the beginning of an incomplete line
  let event = {};
  const line = (text) => {
    if (text === "") {
      if (event.event || event.id) onEvent(event);
      event = {};
      return;
    }
    const colon = text.indexOf(": ");
    if (colon > 0) event[text.slice(0, colon)] = text.slice(colon + 2);
  };
  return (bytes) => {
    const lines = decoder.decode(bytes, { stream: true }).split("\n");
    lines[0] = open + lines[0];
    open = lines.pop();
    for (const text of lines) line(text);
  };
}
