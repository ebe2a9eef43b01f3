// The package's entry in Node: the outbox is a journal file in a folder.

import { Client } from "./client.js";
import { fault } from "./fault.js";
import { JournalStore } from "./journal.js";
import type { OpenOptions } from "./options.js";
import type { WebSocketConstructor } from "./transport.js";

export * from "./index.common.js";

/**
 * Opens the outbox and starts sending what is in it. It needs no server. in_use if another process has the outbox open;
 * usage if no home is given or no WebSocket is to be had;
 * incompatible if this Node is too old.
 */
export async function open(options: OpenOptions): Promise<Client> {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 3)) throw fault("incompatible", `this is Node ${process.versions.node}: install Node 20.3 or newer`);
  if (!options.home) throw fault("usage", "open names no outbox: set home, the folder that it is to be in");
  const WebSocket = (options.WebSocket ?? (globalThis as { WebSocket?: unknown }).WebSocket ?? (await ws())) as WebSocketConstructor;
  const store = await JournalStore.open(options.home, options.journal);
  return Client.on(store, options, WebSocket);
}

/** The package ws, where the system has no WebSocket of its own. */
async function ws(): Promise<unknown> {
  try {
    return (await import("ws")).WebSocket;
  } catch {
    throw fault("usage", "this Node has no WebSocket: install the package ws, or give open a WebSocket constructor");
  }
}
