// How to open a client, wherever that is.

import type { ClientOptions } from "./client.js";

/** How the file of an outbox is kept. */
export interface JournalOptions {
  /** The size from which a file that is mostly history is written anew; default 4 MiB. */
  compactFrom?: number;
}

/** How to open a client: home in Node, name in a browser. */
export interface OpenOptions extends ClientOptions {
  /** Node: the folder that has the outbox; it is made if it is not there. One process at a time may have it open. */
  home?: string;
  /** Browsers: the outbox's name; the tabs of an origin that give the same one share it. Default "default". */
  name?: string;
  /** Node: how the outbox's file is kept. */
  journal?: JournalOptions;
}
