// A session's page while it is open.

import { isAnchor, keyAt, parseKey } from "./anchors.js";
import { Blocks } from "./blocks.js";
import { Contents } from "./contents.js";
import { fetchInTime } from "./fetch.js";
import { keys } from "./keys.js";
import { Later } from "./later.js";
import { follow } from "./live.js";
import { Follower } from "./scroll.js";
import { Search } from "./search.js";
import { Silence } from "./silence.js";
import { Growing } from "./text.js";
import { localTimes } from "./times.js";
import { headers } from "./token.js";
import { Totals } from "./totals.js";

export function session() {
  // A fragment that is no position here is not a secret either, on pages that need none.
  const fragment = location.hash.slice(1);
  if (fragment && !isAnchor(decode(fragment))) history.replaceState(null, "", location.pathname + location.search);

  const { live, cursor, hash } = document.body.dataset;
  const below = (name) => new URL(`${location.pathname}/${name}`, location.href);
  const blocks = new Blocks();
  const contents = new Contents();
  const totals = new Totals(document.getElementById("log"));
  const follower = new Follower();
  const search = document.getElementById("find") ? new Search((key, id) => lead(key, id)) : undefined;
  const { unfolds, tell } = keys(contents, follower, search, (key) => later.reach(key));
  const later = new Later(blocks, {
    fetchMore: async ({ messages, from, to }) => {
      const at = below("more");
      for (const message of messages) at.searchParams.append("message", message);
      if (from) at.searchParams.set("from", from);
      if (to) at.searchParams.set("to", to);
      const reply = await fetchInTime(at, { headers: headers(), credentials: "same-origin", cache: "no-store" });
      if (!reply.ok) throw new Error(String(reply.status));
      const template = document.createElement("template");
      template.innerHTML = await reply.text();
      return [...template.content.children];
    },
    filled: ({ was, now, rest, key }) => {
      totals.leftOut(was, false);
      for (const element of rest) totals.leftOut(element);
      if (unfolds()) for (const element of now) for (const d of element.querySelectorAll("details")) d.open = true;
      for (const element of now) changed(element.dataset.key);
      if (now.length === 0) changed(key);
    },
  });
  const line = document.getElementById("line");
  const words = document.getElementById("state");
  // Content that may no longer be seen is removed: only the reason stays, as
  // after reloading the page.
  const over = (title, message) => {
    later.stop();
    contents.clear();
    search?.remove();
    totals.clear();
    follower.clear();
    document.querySelector(".to-contents").remove();
    document.querySelector("[data-do=fold]").remove();
    document.getElementById("title").textContent = title;
    document.title = `${title} · Mooring`;
    const notice = Object.assign(document.createElement("div"), { className: "error ended", id: "ended" });
    notice.append(Object.assign(document.createElement("strong"), { textContent: title }), Object.assign(document.createElement("p"), { textContent: message }));
    document.getElementById("session").replaceChildren(notice);
    line.dataset.state = words.dataset.state = "over";
    words.textContent = [title, message].filter(Boolean).join(": ");
  };
  const ended = document.getElementById("ended"); // it ended while the page was painted
  if (ended) over(...["strong", "p"].map((name) => ended.querySelector(name)?.textContent ?? ""));
  if (live === undefined || ended) return;

  const fetchBlock = async (key) => {
    const at = below("block");
    at.searchParams.set("key", key);
    const reply = await fetchInTime(at, { headers: headers(), credentials: "same-origin", cache: "no-store" });
    if (reply.status === 404 || reply.status === 410) return null;
    if (!reply.ok) throw new Error(String(reply.status));
    return reply.text();
  };

  // Everything derived from a block follows it.
  const changed = (key) => {
    const { kind, message } = parseKey(key);
    if (kind === "message") {
      mark();
      totals.message(message, blocks.article(message));
      contents.message(message);
      if (contents.shows(message)) for (const part of blocks.article(message).querySelectorAll(".part.text")) growing.named(part.dataset.key, part);
    } else if (kind === "part") {
      totals.part(key, blocks.element(key));
      contents.part(message);
    }
    follower.changed();
    document.dispatchEvent(new CustomEvent("mooring-changed", { detail: key }));
  };

  // Marks the message up to which the session is compacted.
  const mark = () => {
    const upto = document.getElementById("compacted")?.dataset.upto;
    for (const old of document.querySelectorAll(".upto")) if (old.id !== `m-${upto}`) old.classList.remove("upto");
    if (upto) document.getElementById(`m-${upto}`)?.classList.add("upto");
  };
  mark();

  // Leads to the block that the address names, if it is left out.
  const arrive = async () => {
    const fragment = decode(location.hash.slice(1));
    const key = keyAt(fragment);
    if (!key || !later.lacks(key)) return;
    await later.reach(key);
    const element = document.getElementById(fragment);
    if (!element || decode(location.hash.slice(1)) !== fragment) return;
    location.replace(location.href); // it is the address's target now
    follower.goTo(element);
  };
  addEventListener("hashchange", arrive);
  arrive();
  later.look();

  // Leads to what a search has found: a block, which is loaded if it has not come yet.
  let wanted; // the key of a block to which it leads once it is there
  const lead = async (key, id) => {
    wanted = undefined;
    if (key === "session") return scrollTo({ top: 0 });
    await later.reach(key);
    if (document.getElementById(id)) return show(id);
    wanted = key;
    await growing.refetch(key);
    if (wanted === key && !blocks.element(key)) tell("It is not there any more, or cannot be loaded now");
  };
  const show = (id) => {
    let element = document.getElementById(id);
    if (!element.checkVisibility()) element = element.closest(".msg"); // a part that is not shown
    for (const d of element.querySelectorAll(element.matches(".msg") ? ":scope > .foot > details" : ":scope > details")) d.open = true;
    if (decode(location.hash.slice(1)) === element.id) follower.goTo(element);
    else location.hash = element.id;
    element.querySelector(".link, summary")?.focus({ preventScroll: true });
  };

  const put = ({ key, html }) => {
    const { element, isNew } = blocks.put(key, html);
    if (!element) return;
    changed(key);
    if (isNew) {
      if (unfolds()) for (const d of element.querySelectorAll("details")) d.open = true;
      if (!element.classList.contains("step-start")) follower.added();
    }
    search?.changed(key);
    if (wanted === key) {
      wanted = undefined;
      show(element.id);
    }
  };

  const growing = new Growing(blocks, {
    fetchBlock,
    put,
    named: (key) => contents.shows(parseKey(key).message),
    changed: () => follower.changed(),
  });

  const place = document.getElementById("cursor");
  const silence = new Silence();
  const frames = {
    block: (block) => {
      growing.replaced(block.key);
      const claim = blocks.element(block.key)?.querySelector(".own > .body > .claim"); // a put does not end it, and does not say it
      put(block);
      if (claim) blocks.element(block.key)?.querySelector(".own > .body")?.prepend(claim);
    },
    text: (delta) => growing.append(delta),
    changed: ({ key }) => growing.refetch(key),
    gone: ({ key }) => {
      growing.replaced(key);
      blocks.remove(key);
      search?.changed(key, true);
      changed(key);
    },
    turn: ({ message, html }) => blocks.turn(message, html),
    compacted: ({ html }) => {
      document.getElementById("compacted")?.remove();
      document.getElementById("about").insertAdjacentHTML("afterbegin", html);
      localTimes(document.getElementById("about"));
      mark();
    },
    info: ({ title, html }) => {
      if (title) {
        document.getElementById("title").textContent = title;
        document.title = `${title} · Mooring`;
      }
      if (html) blocks.put("session", html);
      search?.changed("session");
    },
  };
  // A message that is left out is loaded when it changes, and then changed.
  const framesOf = Object.fromEntries(
    Object.entries(frames).map(([event, act]) => [
      event,
      (data) => {
        const message = data.message ?? parseKey(data.key ?? "").message;
        if (message === undefined) act(data);
        else later.after(message, () => act(data));
      },
    ]),
  );

  follow({
    url: below("live"),
    cursor: Number(cursor),
    hash,
    frames: framesOf,
    state: (name, text) => {
      line.dataset.state = words.dataset.state = name;
      if (words.textContent !== text) words.textContent = text;
    },
    over,
    reached: (at) => {
      place.textContent = `at cursor ${at}`;
      silence.heard();
    },
  });
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
