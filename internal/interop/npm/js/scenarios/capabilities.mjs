// Callbacks, stubs passed back and on, order.

import { dispose } from '../trial.mjs';

// counterOf gives a class of counters like the server's, of this side.
function counterOf(t) {
  return class extends t.capnweb.RpcTarget {
    constructor(i = 0) { super(); this.i = i; this.disposed = 0; }
    increment(by = 1) { return this.i += by; }
    get value() { return this.i; }
    [Symbol.dispose]() { this.disposed++; }
  };
}

export default [
  { name: 'upstream/over a WebSocket', async run(t) {
    const cap = t.capnweb.newWebSocketRpcSession('ws://' + t.address + '/'), Counter = counterOf(t);
    t.equal(await cap.square(5), 25);
    t.equal(await cap.makeCounter(2).increment(3), 5);
    t.equal(await cap.incrementCounter(new Counter(4), 9), 13);
    await t.rejects(cap.throwError(), 'RangeError', 'test error');
    t.equal(await cap.callSquare(cap.dup(), 3), { result: 9 });
    t.equal(await cap.callFunction(async (i) => i * 2, 4), { result: 8 });
    t.equal(await cap.generateFibonacci(6).map((i) => cap.square(i)), [0, 1, 1, 4, 9, 25]);
    dispose(cap);
  } },

  { name: 'callbacks/function', async run(t) { t.equal(await t.main().callFunction((i) => i + 1, 3), { result: 4 }); } },
  { name: 'callbacks/async function', async run(t) {
    t.equal(await t.main().callFunction(async (i) => { await t.pause(5); return { i }; }, 3), { result: { i: 3 } });
  } },
  { name: 'callbacks/object', async run(t) {
    const Counter = counterOf(t), counter = new Counter(4);
    t.equal(await t.main().incrementCounter(counter, 9), 13);
    await t.until('it is disposed of', () => counter.disposed === 1);
  } },
  { name: 'callbacks/error', async run(t) {
    await t.rejects(t.main().callFunction(() => { throw new RangeError('mine'); }, 1), 'RangeError', 'mine');
  } },
  { name: 'callbacks/capability as argument', server: 'ours', // npm cannot send on its own stub that came back
    async run(t) {
    const counter = await t.main().makeCounter(3);
    t.equal(await t.main().callFunction(async (c) => await c.increment(4), counter), { result: 7 });
    t.equal(await counter.value, 7);
    dispose(counter);
  } },
  { name: 'callbacks/capability as result', async run(t) {
    const Counter = counterOf(t), counter = new Counter(1);
    const got = await t.main().callFunction(() => counter, 0);
    t.equal(await got.result.increment(5), 6);
    dispose(got);
    await t.until('it is disposed of', () => counter.disposed === 1);
  } },
  { name: 'callbacks/many at once, in order', async run(t) {
    const seen = [];
    t.equal(await t.main().callMany((i) => { seen.push(i); return i * 2; }, 200), Array.from({ length: 200 }, (_, i) => i * 2));
    t.equal(seen, Array.from({ length: 200 }, (_, i) => i));
  } },
  { name: 'callbacks/pipelined by the server', async run(t) {
    const Counter = counterOf(t), counter = new Counter(3);
    t.equal(await t.main().pipelineCallback(() => counter, 4), 7);
    await t.until('it is disposed of', () => counter.disposed === 1);
  } },
  { name: 'callbacks/mapped by the server', loose: 'node', // as in map/captures
    async run(t) {
    t.equal(await t.main().mapCallback(() => [1, 2, 3], (x) => x * 2), [2, 4, 6]);
    t.equal(await t.main().mapCallback(() => null, (x) => x * 2), null);
  } },
  { name: 'callbacks/after the answer', async run(t) {
    const seen = [];
    await new Promise((resolve, reject) => {
      t.main().callLater((i) => { seen.push(i); if (i === 9) resolve(); }, 10).catch(reject);
    });
    t.equal(seen, Array.from({ length: 10 }, (_, i) => i));
  } },
  { name: 'callbacks/held', async run(t) {
    const main = t.main();
    t.equal(await main.hold((x) => x + 1), 1);
    t.equal(await main.callHeld(4), 5);
    t.equal(await main.callHeld(5), 6);
    t.equal(await main.heldCount(), 1);
    await main.release();
    t.equal(await main.heldCount(), 0);
    await t.rejects(main.callHeld(1), 'Error', 'nothing is held');
  } },
  { name: 'callbacks/within callbacks', async run(t) {
    const main = t.main();
    const down = async (i) => i === 0 ? 0 : 1 + (await main.callFunction(down, i - 1)).result;
    t.equal(await main.callFunction(down, 5), { result: 5 });
  } },
  { name: "callbacks/the client's main object", async run(t) {
    // Its own is what a client gives a session; servers reach it only if they ask. Here it only has to do no harm.
    const link = t.session(new (counterOf(t))(1));
    t.equal(await link.main.square(2), 4);
  } },

  { name: 'stubs/passed back', async run(t) {
    const Counter = counterOf(t), counter = new Counter(2);
    const back = t.main().echoStub(counter); // awaited, npm fails for its own object ("Tried to resolve a non-promise stub")
    t.equal([await back.increment(3), counter.i], [5, 5]);
    dispose(back);
    await t.until('it is disposed of', () => counter.disposed === 1);
  } },
  { name: "stubs/the server's own passed back", server: 'ours', // npm cannot send on its own stub that came back
    async run(t) {
    const main = t.main(), counter = await main.makeCounter(1), again = await main.echoStub(counter);
    t.equal([await counter.increment(), await again.increment()], [2, 3]);
    dispose(counter);
    t.equal(await again.value, 3);
    dispose(again);
  } },
  { name: 'stubs/promise passed back', async run(t) {
    const main = t.main(), counter = main.laterCounter(20, 1), again = main.echoStub(counter);
    t.equal(await again.increment(), 2);
    dispose(counter); dispose(again);
  } },
  { name: 'stubs/in data', server: 'ours', // the same
    async run(t) {
    const Counter = counterOf(t), mine = new Counter(1), theirs = await t.main().makeCounter(10);
    const got = await t.main().echo({ a: mine, list: [theirs, theirs] });
    t.equal([await got.a.increment(), await got.list[0].increment(), await got.list[1].increment()], [2, 11, 12]);
    dispose(got); dispose(theirs);
    await t.until('it is disposed of', () => mine.disposed === 1);
  } },
  { name: 'stubs/kept and asked for', async run(t) {
    const main = t.main(), Counter = counterOf(t), counter = new Counter(1);
    await main.hold(counter);
    const held = main.held();
    t.equal(await held.increment(), 2);
    dispose(held);
    t.equal(counter.disposed, 0);
    await main.release();
    await t.until('it is disposed of', () => counter.disposed === 1);
  } },
  { name: 'stubs/three parties', async run(t) {
    const a = t.session(), b = t.session();
    const counter = await a.main.makeCounter(5);
    t.equal(await b.main.incrementCounter(counter, 2), 7);
    await b.main.hold(counter);
    const back = b.main.held();
    t.equal(await back.increment(), 8);
    t.equal(await counter.value, 8);
    await b.main.release();
    dispose(back); dispose(counter);
  } },
  { name: 'stubs/three parties, promise', async run(t) {
    const a = t.session(), b = t.session(), counter = a.main.laterCounter(30, 5);
    t.equal(await b.main.incrementCounter(counter, 2), 7);
    dispose(counter);
  } },

  { name: 'order/1000 calls', async run(t) {
    const main = t.main(), calls = Array.from({ length: 1000 }, (_, i) => main.push(i));
    t.equal(await Promise.all(calls), Array.from({ length: 1000 }, (_, i) => i + 1));
    t.equal(await main.takeLog(), Array.from({ length: 1000 }, (_, i) => i));
  } },
  { name: 'order/1000 calls on a late promise', async run(t) {
    const counter = t.main().laterCounter(20, 0), calls = Array.from({ length: 1000 }, () => counter.increment());
    t.equal(await Promise.all(calls), Array.from({ length: 1000 }, (_, i) => i + 1));
    dispose(counter);
  } },
  { name: 'order/arguments that are late', async run(t) {
    const main = t.main(), late = t.own(main.slow(30, 'first'));
    const calls = [main.push(late), main.push('second')];
    await Promise.all(calls);
    const log = await main.takeLog();
    t.equal([...log].sort(), ['first', 'second']);
  } },
  { name: 'order/slow calls hold up nobody', async run(t) {
    const main = t.main();
    const done = [];
    await Promise.all([main.slow(150, 'slow').then((v) => done.push(v)), main.square(2).then((v) => done.push(v))]);
    t.equal(done, [4, 'slow']);
  } },
];
