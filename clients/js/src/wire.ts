// What one calls on a server's objects (docs/javascript.md), as Cap'n Web's stubs take it. They are typed by hand: every
// answer is read with care anyway, and the package's own types stay out of this one's.

/** A struct of the wire, as it comes. */
export type Struct = Record<string, unknown>;

/** A stub: it has every method, and the server says which it knows. */
export interface Stub {
  [method: string]: (...args: unknown[]) => StubPromise;
}
export type StubPromise = Promise<any> & Stub & Disposable;

/** Lets go of what a stub or an answer holds. */
export function dispose(v: unknown): void {
  const d = (v as Partial<Disposable> | null | undefined)?.[Symbol.dispose];
  if (typeof d === "function") {
    try {
      d.call(v);
    } catch {
      // the connection has ended: there is nothing left to let go of
    }
  }
}
