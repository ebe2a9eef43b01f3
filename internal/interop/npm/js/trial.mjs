// What a scenario is given: connections and checks.

import { isDeepStrictEqual, inspect } from 'node:util';
import WebSocket from 'ws';
import { SocketTransport } from './load.mjs';

export class Trial {
  #links = [];

  constructor({ capnweb, version, transport, address, server }) {
    Object.assign(this, { capnweb, version, transport, address, server });
    this.url = (transport === 'batch' ? 'http://' : 'ws://') + address + '/';
    this.watched = 'ws://' + address + (server === 'node' ? '/watched' : '/');
  }

  // session connects: {main, session, transport, close}. finish checks that nothing but the main objects is left in it.
  session(localMain) {
    const transport = new SocketTransport(new WebSocket(this.watched, { perMessageDeflate: false }));
    const session = new this.capnweb.RpcSession(transport, localMain);
    const link = { session, transport, main: session.getRemoteMain(), close: () => transport.close() };
    link.first = session.getStats();
    this.#links.push(link);
    return link;
  }

  // main gives a stub of the server's main object: for a batch, of a new one each time.
  main() {
    if (this.transport === 'batch') return this.capnweb.newHttpBatchRpcSession(this.url);
    return (this.#links[0] ?? this.session()).main;
  }

  // other is a further session for asking about things from outside.
  other() { return this.#other ??= this.session(); }
  #other;

  equal(got, want, what = 'value') {
    if (!isDeepStrictEqual(plain(got), want)) {
      throw new Error(`${what}: got ${inspect(got, { depth: 6 })}, want ${inspect(want, { depth: 6 })}`);
    }
  }
  ok(condition, what) { if (!condition) throw new Error('not so: ' + what); }

  // rejects expects an error of this name and message, and gives it.
  async rejects(promise, name, message) {
    let value;
    try { value = await promise; } catch (error) {
      if (name) this.equal(error.name, name, 'name of ' + error);
      if (message instanceof RegExp) this.ok(message.test(error.message), `${inspect(error.message)} matches ${message}`);
      else if (message !== undefined) this.equal(error.message, message, 'message');
      return error;
    }
    throw new Error(`no error but ${inspect(value)}`);
  }

  // until asks again until it is so, for at most 15 s.
  async until(what, f) {
    const end = performance.now() + 15_000;
    let last;
    do {
      last = await f();
      if (last === true) return;
      await new Promise((resolve) => setTimeout(resolve, 5));
    } while (performance.now() < end);
    throw new Error(`never so: ${what} (${inspect(last)})`);
  }

  // own has a stub or promise disposed of in the end.
  own(stub) { this.#owned.push(stub); return stub; }
  #owned = [];

  pause(ms) { return new Promise((resolve) => setTimeout(resolve, ms)); }

  // lost says that a session is not to be looked at in the end.
  lost(link) { link.lost = true; }

  async finish(loose) {
    for (const stub of this.#owned.reverse()) stub[Symbol.dispose]();
    if (loose) return;
    for (const link of this.#links.filter((l) => !l.lost)) {
      await this.until('our tables are empty', () =>
        isDeepStrictEqual(link.session.getStats(), { imports: 1, exports: 1 }) || link.session.getStats());
      const before = await link.main.stats();
      if (before === null) continue;
      // The server's, the question itself included; a fresh connection's are the same.
      const fresh = this.session();
      const want = await fresh.main.stats();
      fresh.lost = true;
      await this.until("the server's tables are empty", async () => {
        const got = await link.main.stats();
        return isDeepStrictEqual(got, want) || [got, want];
      });
    }
  }

  abandon() { for (const link of this.#links) link.transport.cut(); }
  logs() { return this.#links.filter((l) => l.transport.log.length).flatMap((l, i) => l.transport.log.map((m) => `${i} ${m}`)); }
}

// plain makes the Buffers that capnweb gives on Node plain bytes, to compare.
function plain(v) {
  if (Buffer.isBuffer(v)) return Uint8Array.from(v);
  if (Array.isArray(v)) return v.map(plain);
  if (v && Object.getPrototypeOf(v) === Object.prototype) return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, plain(x)]));
  return v;
}

export const both = ['ws', 'batch'];
export const dispose = (stub) => stub[Symbol.dispose]();
