// Calls, properties and errors.

import { both, dispose } from '../trial.mjs';

export default [
  { name: 'calls/result', on: both, async run(t) { t.equal(await t.main().square(3), 9); } },
  { name: 'calls/several at once', on: both, async run(t) {
    const main = t.main();
    t.equal(await Promise.all([main.square(2), main.returnNull(), main.returnUndefined(), main.returnNumber(-7), main.generateFibonacci(7)]),
      [4, null, undefined, -7, [0, 1, 1, 2, 3, 5, 8]]);
  } },
  { name: 'calls/default argument', on: both, async run(t) {
    const main = t.main(), counter = main.makeCounter(4);
    const got = Promise.all([counter.increment(), counter.increment(5), main.incrementCounter(counter)]);
    t.equal(await got, [5, 10, 11]);
    dispose(counter);
  } },
  { name: 'calls/property', on: both, async run(t) { t.equal(await t.main().answer, 42); } },
  { name: 'calls/property of properties', on: both, async run(t) { t.equal(await t.main().nested.a.b, [1, 2, 3]); } },
  { name: 'calls/array element', on: both, server: 'ours', // npm sends indexes as text and reads only numbers
     async run(t) { t.equal(await t.main().nested.a.b[1], 2); } },
  { name: "calls/object's property", on: both, async run(t) {
    const counter = t.main().makeCounter(4), got = [counter.increment(2), counter.value];
    t.equal(await Promise.all(got), [6, 6]);
    dispose(counter);
  } },
  { name: 'calls/missing property', on: both, async run(t) { t.equal(await t.main().noSuchThing, undefined); } },
  { name: 'calls/missing method', on: both, async run(t) { await t.rejects(t.main().noSuchThing(1), 'TypeError'); } },
  { name: 'calls/method of a missing property', on: both, async run(t) { await t.rejects(t.main().noSuch.thing(1), 'TypeError'); } },
  { name: 'calls/method as a stub', async run(t) {
    const square = await t.main().square;
    t.equal(await square(5), 25);
    dispose(square);
  } },
  { name: 'calls/wrong type', on: both, server: 'ours', async run(t) {
    await t.rejects(t.main().square('x'), 'TypeError');
    await t.rejects(t.main().square({ a: 1 }), 'TypeError');
    await t.rejects(t.main().generateFibonacci(1.5), 'TypeError');
  } },
  { name: 'calls/wrong count', on: both, server: 'ours', async run(t) {
    await t.rejects(t.main().square(), 'TypeError');
    await t.rejects(t.main().square(1, 2), 'TypeError');
  } },
  { name: 'calls/more arguments than there are', on: both, server: 'node', async run(t) { t.equal(await t.main().square(3, 4), 9); } },
  { name: 'calls/large', async run(t) {
    const text = 'x'.repeat(3_000_000);
    t.equal((await t.main().echo([text, text])).map((s) => s.length), [3_000_000, 3_000_000]);
  } },

  { name: 'errors/RangeError', on: both, async run(t) {
    const e = await t.rejects(t.main().throwError(), 'RangeError', 'test error');
    t.ok(e instanceof RangeError, 'instanceof');
  } },
  { name: 'errors/names', on: both, async run(t) {
    for (const name of ['TypeError', 'SyntaxError', 'Error']) await t.rejects(t.main().fail(name, 'of it'), name, 'of it');
  } },
  { name: 'errors/unknown name', on: both, server: 'ours', async run(t) { await t.rejects(t.main().fail('Weird', 'w'), 'Error', 'w'); } },
  { name: 'errors/odd message', on: both, async run(t) { await t.rejects(t.main().fail('Error', 'a "b"\n\u2028é😀'), 'Error', 'a "b"\n\u2028é😀'); } },
  { name: 'errors/properties', since: '0.8.0', on: both, async run(t) {
    const e = await t.rejects(t.main().fail('TypeError', 'm', { code: 7, detail: { list: [1, [2]] }, when: new Date(5) }), 'TypeError', 'm');
    t.equal({ ...e }, { code: 7, detail: { list: [1, [2]] }, when: new Date(5) });
  } },
  { name: 'errors/properties are not for 0.4', on: both, server: 'ours', async run(t) {
    if (t.version !== '0.4.0') return;
    t.equal({ ...(await t.rejects(t.main().fail('TypeError', 'm', { code: 7 }), 'TypeError', 'm')) }, {});
  } },
  { name: 'errors/redaction', on: both, async run(t) {
    await t.rejects(t.main().failSecret(), 'Error', 'internal error');
    await t.rejects(t.main().panic(), undefined, /^internal error(: the log says why at incident [A-Z2-7]{12})?$/);
    t.ok(!t.logs().join().includes('hunter2'), 'the secret stays there');
  } },
  { name: 'errors/no stack', async run(t) {
    await t.rejects(t.main().throwError(), 'RangeError');
    const rejected = t.logs().filter((l) => l.includes('< ["reject"')).map((l) => JSON.parse(l.slice(l.indexOf('['))));
    t.equal(rejected.map((m) => m[2][3] ?? null), [null]);
  } },
  { name: 'errors/do not end the connection', async run(t) {
    for (let i = 0; i < 20; i++) await t.rejects(t.main().throwError(), 'RangeError');
    t.equal(await t.main().square(2), 4);
  } },
];
