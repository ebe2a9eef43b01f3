// The package's entry in Node: the outbox is a journal file in a folder.

import { WebSocket } from "ws";
import { Client } from "./client.js";
import { fault } from "./fault.js";
import { JournalStore } from "./journal.js";
import type { OpenOptions } from "./options.js";
import type { WebSocketConstructor } from "./transport.js";

export * from "./index.common.js";

/**
 * Opens the outbox and starts sending. It needs no server. in_use if another process has the outbox open;
 * usage if no home is given; incompatible if this Node is too old.
 */
export async function open(options: OpenOptions): Promise<Client> {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 3)) throw fault("incompatible", `this is Node ${process.versions.node}: install Node 20.3 or newer`);
  if (!options.home) throw fault("usage", "open names no outbox: set home, the folder that it is to be in");
  const store = await JournalStore.open(options.home, options.journal);
  return Client.on(store, options, (options.WebSocket ?? WebSocket) as WebSocketConstructor);
}
