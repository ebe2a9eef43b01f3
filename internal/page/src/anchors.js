// The ids of blocks: messages, parts, and other keys.

const own = new Set(["session", "contents", "find", "log", "rest", "title", "children"]);

// isAnchor says whether a fragment is a position in a page, not a secret.
export const isAnchor = (fragment) => /^(m-|p-|k-)/.test(fragment) || own.has(fragment);

// The key of the block at a position; undefined for none.
export function keyAt(fragment) {
  if (fragment.startsWith("m-")) return `message/${fragment.slice(2)}`;
  if (fragment.startsWith("p-")) return `part/${fragment.slice(2)}`;
}

// All messages in the log, in their order: those that are left out may be in bundles.
export const messagesIn = (log) => log.querySelectorAll(":scope > .msg, :scope > .bundle > .msg");

// Whether a message's element has a class: of thousands, without an object for each, as its classList is one.
export const hasClass = (element, name) => ` ${element.className} `.includes(` ${name} `);

// Dissolves the bundle that an element is, or is in.
export function unbundle(element) {
  const bundle = element?.closest(".bundle");
  bundle?.replaceWith(...bundle.children);
}

// The message id of a message's or part's key, and the part's.
export function parseKey(key) {
  if (key.startsWith("message/")) return { kind: "message", message: key.slice("message/".length) };
  const [kind, message, ...rest] = key.split("/");
  if (kind === "part" && rest.length > 0) return { kind, message, part: rest.join("/") };
  return { kind: "other" };
}
