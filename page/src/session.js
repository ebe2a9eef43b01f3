// A session's page while it is open.

import { isAnchor, parseKey } from "./anchors.js";
import { Blocks } from "./blocks.js";
import { Contents } from "./contents.js";
import { keys } from "./keys.js";
import { follow } from "./live.js";
import { Follower } from "./scroll.js";
import { Growing } from "./text.js";
import { Totals } from "./totals.js";

export function session() {
  // A link with its secret, opened again: the cookie is there, so the secret goes.
  const fragment = location.hash.slice(1);
  if (fragment && !isAnchor(decode(fragment))) history.replaceState(null, "", location.pathname + location.search);

  const { live, cursor } = document.body.dataset;
  const blocks = new Blocks();
  const contents = new Contents();
  const totals = new Totals(document.getElementById("log").children);
  const follower = new Follower();
  const { unfolds } = keys(contents, follower, blocks);
  const line = document.getElementById("line");
  const words = document.getElementById("state");
  const ended = document.getElementById("ended"); // while the page was painted
  if (ended) {
    line.dataset.state = "over";
    words.textContent = [...ended.children].map((e) => e.textContent).filter(Boolean).join(": ");
  }
  if (!live || ended) return;

  const folder = new URL(live, location.href);
  const growing = new Growing(
    blocks,
    async (key) => {
      const at = new URL("block", folder);
      at.searchParams.set("key", key);
      const reply = await fetch(at, { credentials: "same-origin", cache: "no-store" });
      if (reply.status === 404 || reply.status === 410) return null;
      if (!reply.ok) throw new Error(String(reply.status));
      return reply.text();
    },
    () => follower.changed(),
  );

  const put = ({ key, html }) => {
    growing.replaced(key);
    const { element, isNew } = blocks.put(key, html);
    if (!element) return;
    const { kind, message } = parseKey(key);
    if (kind === "message") {
      contents.message(message, element);
      totals.message(element);
    }
    if (kind === "part") contents.part(message, element);
    if (isNew) {
      if (unfolds()) for (const d of element.querySelectorAll("details")) d.open = true;
      if (!element.classList.contains("step-start")) follower.added();
    }
    follower.changed();
  };

  const place = document.getElementById("cursor");
  follow({
    url: live,
    cursor: Number(cursor),
    frames: {
      block: put,
      text: (delta) => growing.append(delta),
      gone: ({ key }) => {
        growing.replaced(key);
        blocks.remove(key);
        const { kind, message } = parseKey(key);
        if (kind === "message") {
          totals.gone(`m-${message}`);
          contents.gone(message);
        }
      },
      turn: ({ message, html }) => {
        const place = blocks.article(message)?.querySelector(":scope > .head > .turn");
        if (place) place.innerHTML = html;
      },
      info: ({ title, html }) => {
        if (title) {
          document.getElementById("title").textContent = title;
          document.title = `${title} · Mooring`;
        }
        if (html) blocks.put("session", html);
      },
    },
    state: (name, text) => {
      line.dataset.state = words.dataset.state = name;
      if (words.textContent !== text) words.textContent = text;
    },
    reached: (at) => (place.textContent = `at cursor ${at}`),
  });
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
