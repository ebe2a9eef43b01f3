// A server's objects (docs/javascript.md) as Cap'n Web stubs. They are typed by hand, because every
// answer is checked anyway, and capnweb's own types stay out of this package's.

/** A struct as it is received. */
export type Struct = Record<string, unknown>;

/** A stub: it has every method, and the server decides which exist. */
export interface Stub {
  [method: string]: (...args: unknown[]) => StubPromise;
}
export type StubPromise = Promise<any> & Stub & Disposable;

/** Disposes of a stub or an answer. */
export function dispose(v: unknown): void {
  const d = (v as Partial<Disposable> | null | undefined)?.[Symbol.dispose];
  if (typeof d === "function") {
    try {
      d.call(v);
    } catch {
      // the connection has ended: there is nothing to dispose of
    }
  }
}
