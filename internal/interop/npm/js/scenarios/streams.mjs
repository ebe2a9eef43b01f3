// Streams both ways, with flow control, ends and errors.

import { both, dispose } from '../trial.mjs';

const since = '0.5.0';

// With batch: 'ours' a scenario is run in batches against our server only: npm's sends no streams there, or waits for ever.

function of(chunks, opts = {}) {
  let i = 0;
  return new ReadableStream({
    async pull(c) {
      if (i < chunks.length) c.enqueue(chunks[i++]);
      else if (opts.error) c.error(opts.error);
      else c.close();
    },
    cancel(reason) { opts.cancelled?.(reason); },
  });
}

async function read(stream) {
  const all = [];
  for await (const chunk of stream) all.push(chunk);
  return all;
}

// sink is a WritableStream that keeps what becomes of it.
function sink() {
  const w = { chunks: [] };
  w.stream = new WritableStream({
    write(chunk) { w.chunks.push(chunk); },
    close() { w.closed = true; },
    abort(reason) { w.aborted = reason; },
  });
  return w;
}

const upto = (n) => Array.from({ length: n }, (_, i) => i);

export default [
  { name: 'streams/sent', since, on: both, async run(t) { t.equal(await t.main().collect(of(['a', 'b', 'c'])), ['a', 'b', 'c']); } },
  { name: 'streams/sent, empty', since, on: both, async run(t) { t.equal(await t.main().collect(of([])), []); } },
  { name: 'streams/sent, bytes', since, async run(t) {
    t.equal(await t.main().countBytes(of(Array.from({ length: 50 }, () => new Uint8Array(10_000)))), 500_000);
  } },
  { name: 'streams/sent, chunks of many types', since, on: both, async run(t) {
    const chunks = [1, 'text', null, [1, [2]], { a: new Date(5) }, new Uint8Array([1, 2]), 5n, undefined];
    t.equal(await t.main().collect(of(chunks)), chunks);
  } },
  { name: 'streams/sent, many chunks', since, on: both, async run(t) { t.equal(await t.main().collect(of(upto(1000))), upto(1000)); } },
  { name: 'streams/sent, deep in an argument', since, on: both, async run(t) {
    const { a } = await t.main().echo({ a: { b: [of([1, 2])] } });
    t.equal(await read(a.b[0]), [1, 2]);
  } },
  { name: 'streams/sent, with an error', since, on: both, async run(t) {
    await t.rejects(t.main().collect(of([1, 2], { error: new RangeError('mine') })), undefined, /mine/);
  } },
  { name: 'streams/sent, given up by the reader', since, on: both, async run(t) {
    let cancelled = 0;
    const stream = new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(1000)); }, cancel() { cancelled++; } });
    t.equal((await t.main().readSome(stream, 2)).length, 2);
    await t.until('cancelled', () => cancelled === 1);
  } },
  { name: 'streams/passed on, given up while the source is idle', since, server: 'ours', async run(t) {
    let cancelled = 0;
    const stream = new ReadableStream({ start(c) { c.enqueue('one'); }, cancel() { cancelled++; } });
    const back = await t.main().echo({ stream });
    await back.stream.cancel(new Error('enough'));
    await t.until('cancelled', () => cancelled === 1);
    dispose(back);
  } },
  { name: 'streams/sent, never read', since, on: both, async run(t) {
    let cancelled = 0;
    const stream = new ReadableStream({ pull(c) { c.enqueue(new Uint8Array(100_000)); }, cancel() { cancelled++; } }, { highWaterMark: 0 });
    t.equal(await t.main().describe(stream), 'readable');
    await t.until('cancelled', () => cancelled === 1);
  } },
  { name: 'streams/sent, backpressure', since, async run(t) {
    const main = t.main();
    let pulled = 0, stop = false;
    const stream = new ReadableStream({ pull(c) { pulled++; if (stop) c.close(); else c.enqueue(new Uint8Array(10_000)); } }, { highWaterMark: 0 });
    const held = await main.echo({ stream }); // nobody reads what comes back
    let last = -1;
    await t.until('it stands still', async () => { const was = last; last = pulled; await t.pause(100); return was === pulled && pulled > 0 || pulled; });
    t.ok(pulled < 5000, `${pulled} chunks of 10 kB are not too many`);
    stop = true;
    const reader = held.stream.getReader();
    for (let n = 0; ; n++) {
      const { done } = await reader.read();
      if (done) { t.ok(n >= last - 1, `${n} of ${last} arrived`); break; }
    }
  } },
  { name: 'streams/received', since, batch: 'ours', async run(t) { t.equal(await read(await t.main().makeStream(100)), upto(100)); } },
  { name: 'streams/received, empty', since, on: both, async run(t) { t.equal(await read(await t.main().makeStream(0)), []); } },
  { name: 'streams/received, many chunks', since, batch: 'ours', async run(t) { t.equal(await read(await t.main().makeStream(2000)), upto(2000)); } },
  { name: 'streams/received, with an error', since, batch: 'ours', async run(t) {
    const reader = (await t.main().failStream(2, 'theirs')).getReader(), got = [];
    const e = await t.rejects((async () => { for (;;) got.push(await reader.read()); })());
    t.ok(/theirs/.test(e.message), e.message);
  } },
  { name: 'streams/received, backpressure', since, async run(t) {
    const main = t.main(), stream = await main.endless(10_000), reader = stream.getReader();
    for (let i = 0; i < 5; i++) t.equal((await reader.read()).value.length, 10_000);
    let last = -1;
    await t.until('it stands still', async () => {
      const was = last;
      last = await main.produced();
      await t.pause(100);
      return was === last || last;
    });
    t.ok(last < 5000, `${last} chunks of 10 kB are not too many`);
    for (let i = 0; i < last; i++) await reader.read();
    t.ok(await main.produced() > last, 'it goes on');
    await reader.cancel('enough');
    await t.until('it has stopped', async () => { const n = await main.produced(); await t.pause(50); return n === await main.produced(); });
  } },
  { name: 'streams/echoed', since, on: both, async run(t) { t.equal(await read(await t.main().echoStream(of(['a', 1, new Uint8Array([7])]))), ['a', 1, new Uint8Array([7])]); } },
  { name: 'streams/of capabilities, received', since, async run(t) {
    const got = [];
    for await (const counter of await t.main().stubStream(5)) { got.push(await counter.increment(10)); dispose(counter); }
    t.equal(got, [10, 11, 12, 13, 14]);
  } },
  { name: 'streams/of capabilities, sent', since, loose: 'node', async run(t) {
    const { RpcTarget } = t.capnweb;
    let disposed = 0;
    class Thing extends RpcTarget { constructor(i) { super(); this.i = i; } get() { return this.i; } [Symbol.dispose]() { disposed++; } }
    const got = await t.main().collect(of([new Thing(1), new Thing(2)]));
    t.equal([await got[0].get(), await got[1].get()], [1, 2]);
    dispose(got);
    if (t.server === 'ours') await t.until('disposed of', () => disposed === 2 || disposed);
  } },

  { name: 'streams/writable received', since, async run(t) {
    const main = t.main(), stream = await main.writable(), w = stream.getWriter();
    for (const chunk of ['a', { b: 1 }, new Uint8Array([3])]) await w.write(chunk);
    await w.close();
    t.equal(await main.takeWritten(), { chunks: ['a', { b: 1 }, new Uint8Array([3])], closed: true, failed: '' });
  } },
  { name: 'streams/writable received, written without waiting', since, async run(t) {
    const main = t.main(), w = (await main.writable()).getWriter();
    for (let i = 0; i < 500; i++) w.write(i);
    await w.close();
    t.equal((await main.takeWritten()).chunks, upto(500));
  } },
  { name: 'streams/writable received, aborted', since, async run(t) {
    const main = t.main(), w = (await main.writable()).getWriter();
    await w.write(1);
    await w.abort(new Error('changed my mind'));
    await t.until('aborted', async () => (await main.takeWritten()).failed !== '');
    t.equal(await main.takeWritten(), { chunks: [1], closed: false, failed: 'changed my mind' });
  } },
  { name: 'streams/writable received, that fails', since, async run(t) {
    const main = t.main(), w = (await main.failWriter(2, 'full')).getWriter();
    w.closed.catch(() => {});
    const e = await t.rejects((async () => { for (let i = 0; i < 1000; i++) { await w.write(i); await t.pause(1); } await w.close(); })());
    t.ok(/full/.test(e.message), e.message);
    t.equal((await main.takeWritten()).chunks, [0, 1]);
  } },
  { name: 'streams/writable received, backpressure', since, async run(t) {
    const main = t.main(), w = (await main.slowWriter()).getWriter(), chunk = new Uint8Array(50_000);
    let written = 0;
    const all = (async () => { for (let i = 0; i < 100; i++) { await w.ready; await w.write(chunk); written++; } await w.close(); })();
    let last = -1;
    await t.until('it stands still', async () => { const was = last; last = written; await t.pause(100); return was === written; });
    t.ok(written < 100, `${written} of 100 chunks written before the reader reads`);
    await main.openGate();
    await all;
    const { chunks, closed } = await main.takeWritten();
    t.equal([chunks.length, closed], [100, true]);
  } },
  { name: 'streams/writable received, left open when the link is cut', since, async run(t) {
    const link = t.session();
    t.lost(link);
    const w = (await link.main.writable()).getWriter();
    w.closed.catch(() => {});
    await w.write(1);
    link.transport.cut();
    await t.rejects((async () => { for (;;) { await w.write(2); await t.pause(1); } })());
  } },
  { name: 'streams/writable sent', since, batch: 'ours', async run(t) {
    const w = sink();
    await t.main().writeTo(w.stream, 10);
    t.equal([w.chunks, w.closed], [upto(10), true]);
  } },
  { name: 'streams/writable sent, many chunks', since, batch: 'ours', async run(t) {
    const w = sink();
    await t.main().writeTo(w.stream, 2000);
    t.equal(w.chunks, upto(2000));
  } },
  { name: 'streams/writable sent, aborted', since, async run(t) {
    const w = sink();
    await t.main().abortTo(w.stream, 'their reason');
    await t.until('aborted', () => w.aborted !== undefined);
    t.equal([w.chunks, w.aborted.message], [['one'], 'their reason']);
  } },
  { name: 'streams/writable sent, that fails', since, async run(t) {
    let n = 0;
    const stream = new WritableStream({ write() { if (++n === 3) throw new RangeError('mine is full'); } });
    await t.rejects(t.main().writeTo(stream, 1000), undefined, /mine is full/);
  } },
  { name: 'streams/writable sent, aborted when the link is cut', since, async run(t) {
    const link = t.session(), w = sink();
    t.lost(link);
    let first;
    const began = new Promise((resolve) => { first = resolve; });
    const stream = new WritableStream({ write() { first(); return new Promise((r) => setTimeout(r, 50)); }, abort(reason) { w.aborted = reason ?? 'none'; } });
    link.main.writeTo(stream, 1_000_000).catch(() => {});
    await began;
    link.transport.cut();
    await t.until('aborted', () => w.aborted !== undefined);
  } },
  { name: 'streams/both in one message', since, batch: 'ours', async run(t) {
    const w = sink(), got = await t.main().echo({ r: of([1, 2]), n: 1 });
    await t.main().writeTo(w.stream, 2);
    t.equal([await read(got.r), w.chunks], [[1, 2], [0, 1]]);
  } },
  { name: 'streams/result disposed of unread', since, async run(t) {
    const main = t.main(), got = await main.echo({ s: of([1]) });
    dispose(got);
    const stream = await main.endless(10_000);
    await stream.cancel();
    await t.until('it has stopped', async () => { const n = await main.produced(); await t.pause(50); return n === await main.produced(); });
  } },
];
