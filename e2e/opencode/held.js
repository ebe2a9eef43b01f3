// What a server holds of a share.

import assert from "node:assert/strict";

/** Read as `opencode import` does, in the form of an export. */
export async function held(url) {
  const { origin, pathname } = new URL(url);
  const res = await fetch(`${origin}/api${pathname}/data`);
  assert.equal(res.status, 200);
  const items = await res.json();
  const of = (type) => items.filter((item) => item.type === type).map((item) => item.data);
  const byID = (a, b) => (a.id < b.id ? -1 : 1);
  const parts = of("part").sort(byID);
  return {
    info: of("session")[0],
    messages: of("message").sort(byID).map((info) => ({ info, parts: parts.filter((p) => p.messageID === info.id) })),
  };
}
