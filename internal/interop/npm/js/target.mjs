// The target that capnweb/testserver serves, in JavaScript: what each method does is said there (package target).

import { describeAll, describeBody, make } from './values.mjs';

// counts of all connections.
const counts = { made: 0, disposed: 0, broken: 0 };

// targetFor gives the class of main objects for a version of capnweb.
export function targetFor({ RpcTarget, RpcStub }) {
  class Counter extends RpcTarget {
    #i;
    constructor(i = 0) { super(); this.#i = i; counts.made++; }
    increment(amount = 1) { return this.#i += amount; }
    get value() { return this.#i; }
    [Symbol.dispose]() { counts.disposed++; }
  }

  class Disposable extends RpcTarget {
    #gone;
    constructor(gone) { super(); this.#gone = gone; }
    ping() { return 'pong'; }
    [Symbol.dispose]() { this.#gone(); }
  }

  // keep copies a value so that it outlives the call that it came with.
  function keep(v) {
    if (v instanceof RpcStub) return v.dup();
    if (v instanceof ReadableStream) return relayed(v);
    if (v instanceof Request) return v.body ? new Request(v, { body: keep(v.body), duplex: 'half' }) : v;
    if (v instanceof Response) return v.body ? new Response(keep(v.body), v) : v;
    if (Array.isArray(v)) return v.map(keep);
    if (v !== null && typeof v === 'object' && Object.getPrototypeOf(v) === Object.prototype) {
      return Object.fromEntries(Object.entries(v).map(([k, x]) => [k, keep(x)]));
    }
    return v;
  }

  const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

  return class Target extends RpcTarget {
    #state;
    constructor(state = { log: [], held: [], produced: 0, written: {}, open() {} }) { super(); this.#state = state; }
    get state() { return undefined; }
    connected(session) { this.#state.session = session; }

    [Symbol.dispose]() {
      for (const s of this.#state.held.splice(0)) s[Symbol.dispose]();
    }

    square(i) { return i * i; }
    callSquare(self, i) { return { result: self.square(i) }; }
    async callFunction(func, i) { return { result: await func(i) }; }
    throwError() { throw new RangeError('test error'); }
    makeCounter(i) { return new Counter(i); }
    incrementCounter(c, i = 1) { return c.increment(i); }
    generateFibonacci(length) {
      const r = [];
      for (let [a, b] = [0, 1]; r.length < length; [a, b] = [b, a + b]) r.push(a);
      return r;
    }
    returnNull() { return null; }
    returnUndefined() { return undefined; }
    returnNumber(i) { return i; }
    echo(v) { return keep(v); }
    echoStub(stub) { return stub.dup(); }
    echoBlob(blob) { return blob; }

    push(x) { return this.#state.log.push(keep(x)); }
    takeLog() { return this.#state.log.splice(0); }
    async slow(ms, v) { const kept = keep(v); await sleep(ms); return kept; }

    describe(v) { return describeAll(v); }
    make(name) { return make(name); }
    range(n) { return Array.from({ length: n }, (_, i) => i); }

    get answer() { return 42; }
    get nested() { return { a: { b: [1, 2, 3] } }; }

    fail(name, message, props) {
      const type = { TypeError, RangeError, SyntaxError }[name] ?? Error;
      throw Object.assign(new type(message), props ?? {});
    }
    failSecret() { throw new Error('the secret is hunter2'); }
    panic() { throw new Error('the secret is hunter2'); }

    self() { return new Target(this.#state); }
    tree() {
      return {
        name: 'tree',
        deep: { counter: new Counter(10), double: (i) => 2 * i },
        list: [new Counter(20), new Counter()],
      };
    }
    later(ms, v) { const kept = keep(v); return { later: sleep(ms).then(() => kept) }; }
    async laterCounter(ms, i) { await sleep(ms); return new Counter(i); }
    makeDisposable(onDisposed) {
      const f = onDisposed.dup();
      return new Disposable(() => { f().then(() => {}, () => {}).finally(() => f[Symbol.dispose]()); });
    }
    counts() { return { ...counts }; }
    hold(stub) {
      const kept = stub.dup();
      kept.onRpcBroken(() => counts.broken++);
      return this.#state.held.push(kept);
    }
    #last() {
      const { held } = this.#state;
      if (held.length === 0) throw new Error('nothing is held');
      return held[held.length - 1];
    }
    held() { return this.#last().dup(); }
    callHeld(x) { return this.#last()(x); }
    heldCount() { return this.#state.held.length; }
    release() { for (const s of this.#state.held.splice(0)) s[Symbol.dispose](); }
    callLater(func, n) {
      const f = func.dup();
      (async () => { for (let i = 0; i < n; i++) await f(i); })().catch(() => {}).finally(() => f[Symbol.dispose]());
    }
    callMany(func, n) { return Promise.all(Array.from({ length: n }, (_, i) => func(i))); }
    async pipelineCallback(func, by) {
      const made = func();
      try { return await made.increment(by); } finally { made[Symbol.dispose](); }
    }
    async mapCallback(list, each) {
      const made = list();
      try { return await made.map((x) => each(x)); } finally { made[Symbol.dispose](); }
    }
    abort(message) { this.#state.session.abort(message); }
    stats() { return this.#state.session?.getStats() ?? null; }

    makeStream(n) {
      let i = 0;
      return new ReadableStream({ pull(c) { if (i < n) c.enqueue(i++); else c.close(); } });
    }
    failStream(n, message) {
      let i = 0;
      return new ReadableStream({ pull(c) { if (i < n) c.enqueue(i++); else c.error(new RangeError(message)); } });
    }
    endless(size) {
      const state = this.#state;
      state.produced = 0;
      return new ReadableStream({ pull(c) { state.produced++; c.enqueue(new Uint8Array(size)); } }, { highWaterMark: 0 });
    }
    produced() { return this.#state.produced; }
    echoStream(r) { return keep(r); }
    stubStream(n) {
      let i = 0;
      return new ReadableStream({ pull(c) { if (i < n) c.enqueue(new Counter(i++)); else c.close(); } });
    }
    #sink(write) {
      const w = this.#state.written = { chunks: [], closed: false, failed: '' };
      return new WritableStream({
        async write(chunk) { await write(w.chunks.length); w.chunks.push(keep(chunk)); },
        close() { w.closed = true; },
        abort(reason) { w.failed = String(reason?.message ?? reason); },
      });
    }
    writable() { return this.#sink(() => {}); }
    slowWriter() {
      const gate = new Promise((resolve) => { this.#state.open = resolve; });
      return this.#sink(() => gate);
    }
    failWriter(n, message) { return this.#sink((chunks) => { if (chunks >= n) throw new RangeError(message); }); }
    openGate() { this.#state.open(); }
    takeWritten() { return keep(this.#state.written); }
    async countBytes(stream) {
      let n = 0;
      for await (const c of stream) n += typeof c === 'string' ? Buffer.byteLength(c) : c.byteLength;
      return n;
    }
    async collect(stream) {
      const all = [];
      for await (const c of stream) all.push(keep(c));
      return all;
    }
    async readSome(stream, n) {
      const all = [], reader = stream.getReader();
      for (let i = 0; i < n; i++) all.push((await reader.read()).value);
      await reader.cancel('enough');
      return all;
    }
    async writeTo(writable, n) {
      const w = writable.getWriter();
      for (let i = 0; i < n; i++) await w.write(i);
      await w.close();
    }
    async abortTo(writable, message) {
      const w = writable.getWriter();
      await w.write('one');
      await w.abort(new Error(message));
    }
    describeBody(v) { return describeBody(v); }
    makeRequest() {
      return new Request('https://example.com/made', { method: 'POST', headers: { 'x-made': 'yes' }, body: body('request body'), duplex: 'half' });
    }
    makeResponse() {
      return new Response(body('response body'), { status: 201, statusText: 'Made', headers: { 'x-made': 'yes' } });
    }
  };
}

// relayed reads a stream for another one: what came as an argument does not outlive the call.
function relayed(stream) {
  const reader = stream.getReader();
  return new ReadableStream({
    async pull(c) {
      const { done, value } = await reader.read();
      if (done) c.close(); else c.enqueue(value);
    },
    cancel(reason) { return reader.cancel(reason); },
  }, { highWaterMark: 0 });
}

// body is text as a stream of two chunks.
function body(text) {
  const bytes = new TextEncoder().encode(text);
  return new ReadableStream({ start(c) { c.enqueue(bytes.slice(0, 4)); c.enqueue(bytes.slice(4)); c.close(); } });
}
