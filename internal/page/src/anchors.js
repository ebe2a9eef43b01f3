// The ids of blocks: those of messages, of parts, of anything else with a key.

const own = new Set(["session", "contents", "log", "rest", "title"]);

// isAnchor says whether a fragment names a place in a page, and is no secret.
export const isAnchor = (fragment) => /^(m-|p-|k-)/.test(fragment) || own.has(fragment);

// A message's id of the key of a message or part, and the part's.
export function parseKey(key) {
  const [kind, message, ...rest] = key.split("/");
  if (kind === "message") return { kind, message: key.slice("message/".length) };
  if (kind === "part" && rest.length > 0) return { kind, message, part: rest.join("/") };
  return { kind: "other" };
}
