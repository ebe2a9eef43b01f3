// What only HTTP batches do.

const batch = ['batch'];
const post = (t, body, headers = {}) => fetch(t.url, { method: 'POST', body, headers });

export default [
  { name: 'upstream/batch', on: batch, async run(t) {
    const cap = t.capnweb.newHttpBatchRpcSession(t.url), one = cap.square(6), counter = cap.makeCounter(2);
    const two = counter.increment(3), three = cap.incrementCounter(counter, 4);
    t.equal(await Promise.all([one, two, three]), [36, 5, 9]);
  } },
  { name: 'batch/GET', on: batch, node: '0.12.0', // 0.4.0 does not end its answer
     async run(t) {
    const response = await fetch(t.url);
    await response.text();
    t.equal(response.status, 405);
  } },
  { name: 'batch/empty', on: batch, async run(t) {
    const response = await post(t, '');
    t.equal([response.status, await response.text()], [200, '']);
  } },
  { name: 'batch/answers are lines', on: batch, async run(t) {
    const lines = ['["push",["pipeline",0,["square"],[3]]]', '["pull",1]', '["push",["pipeline",0,["square"],[4]]]', '["push",["pipeline",0,["square"],[5]]]', '["pull",3]'];
    const response = await post(t, lines.join('\n'));
    const text = await response.text();
    t.equal(response.status, 200);
    t.ok(!text.endsWith('\n'), 'no newline at the end');
    t.equal(text.split('\n').map((l) => JSON.parse(l)).sort((a, b) => a[1] - b[1]), [['resolve', 1, 9], ['resolve', 3, 25]]);
  } },
  { name: 'batch/waits for what is late', on: batch, async run(t) {
    const main = t.main();
    t.equal(await Promise.all([main.slow(60, 'a'), main.slow(30, 'b'), main.square(2)]), ['a', 'b', 4]);
  } },
  { name: 'batch/runs what nobody asks for', on: batch, async run(t) {
    const main = t.main();
    main.push('one');
    main.push('two');
    t.equal(await main.takeLog(), ['one', 'two']);
  } },
  { name: 'batch/callbacks are rejected', on: batch, server: 'ours', // npm never answers
     async run(t) {
    await t.rejects(t.main().callFunction((i) => i + 1, 3));
  } },
  { name: 'batch/calls after it are rejected', on: batch, async run(t) {
    const main = t.main();
    t.equal(await main.square(2), 4);
    await t.rejects((async () => main.square(3))());
  } },
  { name: 'batch/stub used after it', on: batch, async run(t) {
    const main = t.main(), counter = await main.makeCounter(1);
    await t.rejects((async () => counter.increment())());
  } },
  { name: 'batch/objects are disposed of after it', on: batch, server: 'ours', // npm leaves them to the collector
     async run(t) {
    const before = await t.main().counts(), main = t.main();
    t.equal(await main.makeCounter(1).increment(), 2);
    await t.until('disposed of', async () => {
      const now = await t.main().counts();
      return now.made - before.made === 1 && now.disposed - before.disposed === 1 || now;
    });
  } },
  { name: 'batch/state is its own', on: batch, async run(t) {
    t.equal(await t.main().push('x'), 1);
    t.equal(await t.main().push('x'), 1);
  } },
  { name: 'batch/origins', on: batch, async run(t) {
    const response = await post(t, '', { Origin: 'https://elsewhere.example' });
    await response.text();
    t.ok(['*', 'https://elsewhere.example'].includes(response.headers.get('access-control-allow-origin')), 'access-control-allow-origin');
  } },
  { name: 'batch/abort', on: batch, async run(t) {
    const response = await post(t, '["push",["pipeline",0,["square"],[3]]]\n["pull",1]\n["frobnicate"]');
    t.ok((await response.text()).includes('"abort"') || response.status >= 400, 'told');
  }, server: 'ours' },
  { name: 'batch/1000 calls', on: batch, async run(t) {
    const main = t.main(), calls = Array.from({ length: 1000 }, (_, i) => main.push(i));
    t.equal(await Promise.all(calls), Array.from({ length: 1000 }, (_, i) => i + 1));
  } },
];
