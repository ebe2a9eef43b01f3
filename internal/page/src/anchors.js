// The ids of blocks: messages, parts, and other keys.

const own = new Set(["session", "contents", "find", "log", "rest", "title", "children"]);

// isAnchor says whether a fragment is a position in a page, not a secret.
export const isAnchor = (fragment) => /^(m-|p-|k-)/.test(fragment) || own.has(fragment);

// The key of the block at a position; undefined for none.
export function keyAt(fragment) {
  if (fragment.startsWith("m-")) return `message/${fragment.slice(2)}`;
  if (fragment.startsWith("p-")) return `part/${fragment.slice(2)}`;
}

// The message id of a message's or part's key, and the part's.
export function parseKey(key) {
  const [kind, message, ...rest] = key.split("/");
  if (kind === "message") return { kind, message: key.slice("message/".length) };
  if (kind === "part" && rest.length > 0) return { kind, message, part: rest.join("/") };
  return { kind: "other" };
}
