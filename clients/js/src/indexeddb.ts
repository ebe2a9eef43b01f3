// The outbox of a browser: IndexedDB, shared by all tabs of an origin. Any tab commits into it; the one that holds the
// outbox's Web Lock sends.
//
// Every row has the number of the write that made it, so that a tab can read newer rows only. Writes are
// transactions on the whole store, one at a time over all tabs, and begin with that read. A BroadcastChannel
// announces writes; tabs also poll once a second, since sleeping tabs miss messages. A removed row leaves a tombstone
// (the number of the write) for a day; the next open after that deletes it.
//
// A row in the database is whole, for tabs of every version: if memory has its ops packed, a write takes them from the row there.

import { fault } from "./fault.js";
import { type BatchRow, isWhole, type StoredRow } from "./rows.js";
import { type Change, checked, opsIn, type ReadOps, Store, storageError, type TableName } from "./store.js";

interface Stored {
  t: TableName;
  k: string;
  n: number; // the number of the write
  d: unknown; // the row; null once it is removed
  at?: number; // when it was removed
}

const recheckEvery = 1000;

/** How long tombstones are kept, for sleeping tabs that have the row in memory. */
const keepRemoved = 24 * 3600_000;

/** Rows in IndexedDB, shared with other tabs. */
export class IndexedDBStore extends Store {
  readonly #db: IDBDatabase;
  readonly #name: string;
  readonly #channel: BroadcastChannel | undefined;
  readonly #timer: ReturnType<typeof setInterval>;
  #seen = 0; // the last write that the tables contain
  #removed: [TableName, string][] | undefined = []; // old tombstones, as found when the outbox was opened
  #looking: Promise<void> | undefined;
  #lookAgain = false;
  #release: (() => void) | undefined;
  #leads = false;
  #closed = false;

  private constructor(db: IDBDatabase, name: string) {
    super();
    this.#db = db;
    this.#name = name;
    if (typeof BroadcastChannel === "function") {
      this.#channel = new BroadcastChannel(name);
      this.#channel.onmessage = () => this.#look();
    }
    this.#timer = setInterval(() => this.#look(), recheckEvery);
    db.onversionchange = () => { // the outbox is being deleted
      this.breakWith(fault("unavailable", "the outbox's database is being deleted"));
      db.close();
    };
  }

  /** Opens the outbox of a name; a new one if there is none. */
  static async open(name: string): Promise<IndexedDBStore> {
    const full = `mooring-outbox/${name}`;
    try {
      const db = await new Promise<IDBDatabase>((resolve, reject) => {
        const open = indexedDB.open(full, 1);
        open.onupgradeneeded = () => {
          open.result.createObjectStore("rows", { keyPath: ["t", "k"] }).createIndex("n", "n");
          open.result.createObjectStore("writes");
        };
        open.onsuccess = () => resolve(open.result);
        open.onerror = () => reject(open.error);
      });
      const store = new IndexedDBStore(db, full);
      await store.#catchUpNow();
      await store.#forget().catch(() => {}); // the next open tries again
      return store;
    } catch (err) {
      throw storageError("open the outbox", err);
    }
  }

  #look(): void {
    if (this.#closed) return;
    this.#lookAgain = true;
    this.#looking ??= (async () => {
      while (this.#lookAgain && !this.#closed) {
        this.#lookAgain = false;
        // Not during a write: the tables already contain it, and it may be rolled back.
        await this.idle();
        if (await this.#catchUpNow().catch(() => false)) this.changed();
      }
      this.#looking = undefined;
    })();
  }

  override async refresh(): Promise<void> {
    await this.idle();
    if (!this.#closed && (await this.#catchUpNow())) this.changed();
  }

  /** Reads the writes of other tabs; returns whether there were any. */
  #catchUpNow(): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const tx = this.#db.transaction(["rows", "writes"], "readonly");
      let news = false;
      this.#catchUp(tx, (_, found) => { news = found; });
      tx.oncomplete = () => resolve(news);
      tx.onabort = () => reject(tx.error);
    });
  }

  /** Deletes old tombstones. */
  #forget(): Promise<void> {
    const removed = this.#removed;
    this.#removed = undefined;
    if (removed === undefined || removed.length === 0) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const tx = this.#db.transaction("rows", "readwrite"), rows = tx.objectStore("rows");
      for (const key of removed) {
        const get = rows.get(key);
        get.onsuccess = () => { // the row may exist again
          if ((get.result as Stored | undefined)?.d === null) rows.delete(key);
        };
      }
      tx.oncomplete = () => resolve();
      tx.onabort = () => reject(tx.error);
    });
  }

  /** Reads newer rows within a transaction, and then calls next with the last write's number. */
  #catchUp(tx: IDBTransaction, next: (last: number, news: boolean) => void): void {
    const get = tx.objectStore("writes").get("last");
    get.onsuccess = () => {
      const last = (get.result as number | undefined) ?? 0;
      if (last <= this.#seen) {
        next(last, false);
        return;
      }
      const rows = tx.objectStore("rows").index("n").getAll(IDBKeyRange.lowerBound(this.#seen, true));
      rows.onsuccess = () => {
        if (last > this.#seen) { // another transaction may have read them already
          for (const r of rows.result as Stored[]) {
            const c = { t: r.t, k: r.k, v: r.d } as Change;
            this.tables.apply(c);
            this.#pack(c);
            if (r.d === null && (r.at ?? 0) < Date.now() - keepRemoved) this.#removed?.push([r.t, r.k]);
          }
          this.#seen = last;
        }
        next(last, true);
      };
    };
  }

  #pack(c: Change): void {
    const ops = opsIn(c);
    if (ops) this.tables.pack(c.k, ops);
  }

  protected override read(rows: readonly StoredRow[]): Promise<ReadOps[]> {
    return new Promise((resolve, reject) => {
      const tx = this.#db.transaction(["rows", "writes"], "readonly"), out: ReadOps[] = [];
      let news = false, failed: unknown;
      this.#catchUp(tx, (_, found) => {
        news = found;
        for (const r of rows) {
          if (this.tables.batches.get(r.id)?.ops !== r.ops) continue; // another tab has changed it
          const get = tx.objectStore("rows").get(["batch", r.id]);
          get.onsuccess = () => {
            try {
              out.push(checked(r, (get.result as { d: BatchRow | null } | undefined)?.d?.ops));
            } catch (err) {
              failed ??= err;
            }
          };
        }
      });
      tx.oncomplete = () => {
        if (failed === undefined) resolve(out);
        else reject(failed);
        if (news) queueMicrotask(() => this.changed());
      };
      tx.onabort = () => reject(tx.error);
    });
  }

  protected override write(run: () => Change[]): Promise<void> {
    return new Promise((resolve, reject) => {
      let tx: IDBTransaction, changes: Change[] = [], written = 0, news = false, failed: unknown;
      try {
        tx = this.#db.transaction(["rows", "writes"], "readwrite", { durability: "strict" });
      } catch (err) {
        reject(storageError("write to the outbox", err));
        return;
      }
      this.#catchUp(tx, (last, found) => {
        news = found;
        try {
          changes = run();
          if (changes.length === 0) return;
          written = last + 1;
          const rows = tx.objectStore("rows");
          for (const { t, k } of new Map(changes.map((c) => [`${c.t} ${c.k}`, c])).values()) {
            const d = this.tables.get(t, k) ?? null, put = (d: unknown) => rows.put({ t, k, n: written, d, ...(d === null && { at: Date.now() }) } satisfies Stored);
            if (t !== "batch" || d === null || isWhole(d as StoredRow)) {
              put(d);
              continue;
            }
            const get = rows.get([t, k]);
            get.onsuccess = () => put({ ...d, ops: (get.result as { d: BatchRow }).d.ops });
          }
          tx.objectStore("writes").put(written, "last");
        } catch (err) {
          failed = err;
          tx.abort();
        }
      });
      tx.oncomplete = () => {
        if (written > 0) {
          this.#seen = Math.max(this.#seen, written);
          for (const c of changes) this.#pack(c);
          this.#channel?.postMessage(written);
        }
        resolve();
        if (news) queueMicrotask(() => this.changed());
      };
      tx.onabort = () => {
        reject(storageError("write to the outbox", failed ?? tx.error));
        if (news) queueMicrotask(() => this.changed());
      };
    });
  }

  override lead(signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const held = new Promise<void>((release) => { this.#release = release; });
      navigator.locks
        .request(`${this.#name}/sender`, { signal }, async () => {
          await this.idle();
          await this.#catchUpNow();
          this.#leads = true;
          resolve();
          await held; // until this tab closes the outbox, or is closed
        })
        .catch(reject);
    });
  }

  override async othersSend(): Promise<boolean> {
    const { held = [] } = await navigator.locks.query();
    return !this.#leads && held.some((lock) => lock.name === `${this.#name}/sender`);
  }

  override async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    await this.#looking;
    await this.idle();
    this.breakWith(fault("canceled", "the outbox is closed"));
    this.#channel?.close();
    this.#db.close();
    this.#release?.();
  }
}
