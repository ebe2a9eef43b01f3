// Promise pipelining and map().

import { both, dispose } from '../trial.mjs';

// flights counts the calls sent before anything was received.
function flights(t) {
  const log = t.logs().map((l) => l.replace(/^\d+ /, ''));
  const first = log.findIndex((l) => l.startsWith('<'));
  return log.slice(0, first < 0 ? undefined : first).filter((l) => l.startsWith('> ["push"')).length;
}

export default [
  { name: 'pipelining/call on a promise', on: both, async run(t) {
    const counter = t.main().makeCounter(5);
    t.equal(await counter.increment(3), 8);
    dispose(counter);
  } },
  { name: 'pipelining/three deep', on: both, async run(t) {
    const a = t.main().self(), b = a.self(), c = b.makeCounter(1);
    t.equal(await c.increment(2), 3);
    if (t.transport === 'ws') t.equal(flights(t), 4, 'calls before the first answer');
    for (const p of [a, b, c]) dispose(p);
  } },
  { name: 'pipelining/in arguments', on: both, async run(t) {
    const main = t.main();
    t.equal(await main.square(t.own(main.square(3))), 81);
  } },
  { name: 'pipelining/three deep in arguments', on: both, async run(t) {
    const main = t.main();
    t.equal(await main.square(t.own(main.square(t.own(main.square(2))))), 256);
    if (t.transport === 'ws') t.equal(flights(t), 3, 'calls before the first answer');
  } },
  { name: 'pipelining/deep in an argument', on: both, async run(t) {
    const main = t.main();
    t.equal(await main.echo({ a: [t.own(main.square(2)), { b: t.own(main.square(3)) }] }), { a: [4, { b: 9 }] });
  } },
  { name: 'pipelining/behind the calls on a promise', on: both, async run(t) {
    const main = t.main(), counters = Array.from({ length: 20 }, () => main.laterCounter(20, 2));
    const calls = counters.flatMap((c) => [c.increment(3), main.incrementCounter(c, 4)]);
    t.equal(await Promise.all(calls), counters.flatMap(() => [5, 9]));
    counters.forEach(dispose);
  } },
  { name: 'pipelining/promise in a result', on: both, async run(t) {
    const main = t.main();
    t.equal(await main.callSquare(main, 3), { result: 9 });
  } },
  { name: 'pipelining/late promise in a result', on: both, server: 'ours', // npm sends no plain Promise
     async run(t) { t.equal(await t.main().later(20, { x: 1 }), { later: { x: 1 } }); } },
  { name: 'pipelining/through a late promise in a result', on: both, server: 'ours', async run(t) {
    t.equal(await t.own(t.main().later(20, { x: { y: 5 } })).later.x.y, 5);
  } },
  { name: 'pipelining/promise as a capability', on: both, async run(t) {
    const main = t.main(), counter = main.makeCounter(2);
    t.equal(await Promise.all([main.square(6), counter.increment(3), main.incrementCounter(counter, 4)]), [36, 5, 9]);
    dispose(counter);
  } },
  { name: 'pipelining/on a late result', on: both, async run(t) {
    const c = t.main().laterCounter(20, 10);
    t.equal(await Promise.all([c.increment(), c.increment(), c.increment(5)]), [11, 12, 17]);
    dispose(c);
  } },
  { name: 'pipelining/by a path', on: both, server: 'ours', // array indexes
     async run(t) {
    const tree = t.main().tree();
    t.equal(await Promise.all([tree.name, tree.deep.counter.increment(), tree.deep.double(4), tree.list[0].value, tree.list[1].increment()]),
      ['tree', 11, 8, 20, 1]);
    dispose(tree);
  } },
  { name: 'pipelining/property as an argument', on: both, server: 'ours', // array indexes
     async run(t) {
    const main = t.main();
    t.equal(await main.square(main.nested.a.b[1]), 4);
  } },
  { name: 'pipelining/method as an argument', on: both, async run(t) {
    const main = t.main();
    t.equal(await main.callFunction(main.square, 4), { result: 16 });
  } },
  { name: 'pipelining/errors', on: both, async run(t) {
    const main = t.main(), failed = t.own(main.throwError());
    const results = await Promise.allSettled([failed, failed.some.thing(), main.square(failed), main.echo([failed])]);
    t.equal(results.map((r) => r.reason?.message), Array(4).fill('test error'));
  } },
  { name: 'pipelining/not awaited', async run(t) {
    const main = t.main(), p = main.push('x');
    t.equal(await main.takeLog(), ['x']);
    dispose(p);
  } },

  { name: 'map/null', on: both, async run(t) { const m = t.main(); t.equal(await t.own(m.returnNull()).map((i) => m.square(i)), null); } },
  { name: 'map/undefined', on: both, async run(t) { const m = t.main(); t.equal(await t.own(m.returnUndefined()).map((i) => m.square(i)), undefined); } },
  { name: 'map/scalar', on: both, async run(t) { const m = t.main(); t.equal(await t.own(m.returnNumber(3)).map((i) => m.square(i)), 9); } },
  { name: 'map/array', on: both, async run(t) { const m = t.main(); t.equal(await t.own(m.generateFibonacci(6)).map((i) => m.square(i)), [0, 1, 1, 4, 9, 25]); } },
  { name: 'map/empty array', on: both, async run(t) { const m = t.main(); t.equal(await t.own(m.generateFibonacci(0)).map((i) => m.square(i)), []); } },
  { name: 'map/nested', on: both, async run(t) {
    const m = t.main();
    t.equal(await t.own(m.generateFibonacci(5)).map((i) => m.generateFibonacci(i).map((j) => m.square(j))), [[], [0], [0], [0, 1], [0, 1, 1]]);
  } },
  { name: 'map/result with literals', on: both, async run(t) {
    const m = t.main();
    t.equal(await t.own(m.range(3)).map((i) => ({ i, square: m.square(i), list: [i, 'x', null] })),
      [0, 1, 2].map((i) => ({ i, square: i * i, list: [i, 'x', null] })));
  } },
  { name: 'map/values in it', on: both, async run(t) {
    const m = t.main();
    t.equal(await t.own(m.range(1)).map((i) => ({ d: new Date(7), b: new Uint8Array([1]), n: 5n, u: undefined })),
      [{ d: new Date(7), b: new Uint8Array([1]), n: 5n, u: undefined }]);
  } },
  { name: "map/element's properties", on: both, async run(t) {
    const m = t.main();
    t.equal(await t.own(m.echo([{ a: { b: 2 } }, { a: { b: 3 } }])).map((x) => m.square(x.a.b)), [4, 9]);
  } },
  { name: 'map/of a property', on: both, async run(t) { const m = t.main(); t.equal(await m.nested.a.b.map((i) => m.square(i)), [1, 4, 9]); } },
  { name: 'map/of capabilities', on: both, async run(t) {
    const tree = t.main().tree();
    t.equal(await tree.list.map((c) => c.increment(5)), [25, 5]);
    dispose(tree);
  } },
  { name: 'map/several steps', on: both, async run(t) {
    const m = t.main();
    t.equal(await t.own(m.range(4)).map((i) => m.square(m.square(i))), [0, 1, 16, 81]);
  } },
  { name: 'map/captures', on: both, loose: true, // npm's recorder keeps a reference to what was captured
     async run(t) {
    const m = t.main(), counter = m.makeCounter(0);
    t.equal(await t.own(m.range(5)).map((i) => counter.increment(i)), [0, 1, 3, 6, 10]);
    dispose(counter);
  } },
  { name: "map/captures of the caller's", loose: true, async run(t) {
    const { RpcStub } = t.capnweb, seen = [];
    const f = new RpcStub((i) => { seen.push(i); return i * 10; });
    t.equal(await t.main().range(4).map((i) => f(i)), [0, 10, 20, 30]);
    t.equal(seen, [0, 1, 2, 3]);
    dispose(f);
  } },
  { name: 'map/error', on: both, async run(t) {
    const m = t.main();
    await t.rejects(t.own(m.range(3)).map((i) => m.throwError()), 'RangeError', 'test error');
  } },
  { name: 'map/of an error', on: both, async run(t) {
    const m = t.main();
    await t.rejects(t.own(m.throwError()).map((i) => m.square(i)), 'RangeError', 'test error');
  } },
  { name: 'map/then more', on: both, server: 'ours', // array indexes
     async run(t) {
    const m = t.main();
    t.equal(await t.own(t.own(m.range(3)).map((i) => m.square(i)))[2], 4);
  } },
  { name: 'map/a thousand', on: both, async run(t) {
    const m = t.main(), got = await t.own(m.range(1000)).map((i) => m.square(i));
    t.equal(got.length, 1000);
    t.equal(got[999], 999 * 999);
  } },
  { name: 'map/amplification', server: 'ours', async run(t) {
    const m = t.main();
    await t.rejects(t.own(m.range(1000)).map((i) => m.range(1000).map((j) => m.range(1000).map((k) => m.square(k)))));
    t.equal(await m.square(2), 4, 'the connection lives');
  } },
];
