// The package's entry in browsers: the outbox is in IndexedDB, shared by the tabs of an origin.

import { Client } from "./client.js";
import { fault } from "./fault.js";
import { IndexedDBStore } from "./indexeddb.js";
import type { OpenOptions } from "./options.js";
import type { WebSocketConstructor } from "./transport.js";

export * from "./index.common.js";

/**
 * Opens the outbox, and starts sending as soon as no other tab does. It needs no server. usage if the
 * browser has no Web Locks (they need a secure context: https, or localhost).
 */
export async function open(options: OpenOptions = {}): Promise<Client> {
  if (!("locks" in navigator)) throw fault("usage", "this page has no Web Locks: serve it over https or from localhost");
  const store = await IndexedDBStore.open(options.name ?? "default");
  return Client.on(store, options, (options.WebSocket ?? globalThis.WebSocket) as WebSocketConstructor);
}
