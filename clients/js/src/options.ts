// The options of open, for Node and browsers.

import type { ClientOptions } from "./client.js";

/** Options of an outbox's file. */
export interface JournalOptions {
  /** The size above which a file that is mostly history is rewritten; default 4 MiB. */
  compactFrom?: number;
}

/** Options of open: home in Node, name in a browser. */
export interface OpenOptions extends ClientOptions {
  /** Node: the folder of the outbox, made if it does not exist. One process at a time may have it open. */
  home?: string;
  /** Browsers: the outbox's name; the tabs of an origin with the same name share it. Default "default". */
  name?: string;
  /** Node: options of the outbox's file. */
  journal?: JournalOptions;
}
