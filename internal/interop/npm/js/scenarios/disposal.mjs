// Who holds what: reference counts and disposers, counted on both sides.

import { dispose } from '../trial.mjs';

// during gives how many counters the server made and disposed of while f ran; it waits until as many are disposed of.
async function disposed(t, main, want, f) {
  const before = await main.counts();
  await f();
  await t.until(`${want} disposed of`, async () => {
    const now = await main.counts();
    return now.disposed - before.disposed === want || now.disposed - before.disposed;
  });
}

function targetOf(t) {
  return class extends t.capnweb.RpcTarget {
    disposed = 0;
    ping() { return 'pong'; }
    [Symbol.dispose]() { this.disposed++; }
  };
}

export default [
  { name: 'disposal/of a result', async run(t) {
    const main = t.main();
    await disposed(t, main, 1, async () => { const c = await main.makeCounter(1); t.equal(await c.value, 1); dispose(c); });
  } },
  { name: 'disposal/of a promise', async run(t) {
    const main = t.main();
    await disposed(t, main, 1, async () => { const c = main.makeCounter(1); t.equal(await c.value, 1); dispose(c); });
  } },
  { name: 'disposal/of a promise never asked for', async run(t) {
    const main = t.main();
    await disposed(t, main, 1, async () => { dispose(main.makeCounter(1)); });
  } },
  { name: 'disposal/of a promise not resolved yet', async run(t) {
    const main = t.main();
    await disposed(t, main, 1, async () => { const c = main.laterCounter(30, 1); const v = c.increment(); dispose(c); t.equal(await v, 2); });
  } },
  { name: 'disposal/twice', async run(t) {
    const main = t.main();
    await disposed(t, main, 1, async () => { const c = await main.makeCounter(1); dispose(c); dispose(c); });
    t.equal(await main.square(2), 4);
  } },
  { name: 'disposal/dup', async run(t) {
    const main = t.main(), before = await main.counts();
    const a = await main.makeCounter(1), b = a.dup(), c = b.dup();
    dispose(a); dispose(c);
    t.equal(await b.increment(), 2);
    t.equal((await main.counts()).disposed, before.disposed);
    await disposed(t, main, 1, () => dispose(b));
  } },
  { name: 'disposal/calls on a disposed stub', async run(t) {
    const c = await t.main().makeCounter(1);
    dispose(c);
    await t.rejects((async () => c.increment())());
  } },
  { name: 'disposal/of a result with many', async run(t) {
    const main = t.main();
    await disposed(t, main, 3, async () => { const tree = await main.tree(); t.equal(tree.name, 'tree'); dispose(tree); });
  } },
  { name: 'disposal/of parts of a result', async run(t) {
    const main = t.main();
    await disposed(t, main, 3, async () => { const tree = await main.tree(); dispose(tree.list[0]); dispose(tree); });
  } },
  { name: 'disposal/one kept of many', async run(t) {
    const main = t.main();
    let kept;
    await disposed(t, main, 2, async () => { const tree = await main.tree(); kept = tree.list[0].dup(); dispose(tree); });
    t.equal(await kept.value, 20);
    await disposed(t, main, 1, () => dispose(kept));
  } },
  { name: 'disposal/100 objects', async run(t) {
    const main = t.main();
    await disposed(t, main, 100, async () => {
      const all = await Promise.all(Array.from({ length: 100 }, (_, i) => main.makeCounter(i)));
      t.equal(await Promise.all(all.map((c) => c.value)), Array.from({ length: 100 }, (_, i) => i));
      all.forEach(dispose);
    });
  } },
  { name: 'disposal/of arguments', async run(t) {
    const Target = targetOf(t), target = new Target();
    t.equal(await t.main().describe({ target }), '{target: stub}');
    await t.until('it is disposed of', () => target.disposed === 1);
    await t.pause(5);
    t.equal(target.disposed, 1);
  } },
  { name: 'disposal/the same stub many times', async run(t) {
    const Target = targetOf(t), { RpcStub } = t.capnweb, target = new Target(), stub = new RpcStub(target), main = t.main();
    for (let i = 0; i < 3; i++) t.equal(await main.hold(stub), i + 1);
    t.equal(await main.describe([stub, stub, stub]), '[stub, stub, stub]');
    dispose(stub);
    const held = main.held();
    t.equal(await held.ping(), 'pong');
    dispose(held);
    t.equal(target.disposed, 0);
    await main.release();
    await t.until('it is disposed of', () => target.disposed === 1);
  } },
  { name: 'disposal/sent again while it is released', async run(t) {
    const Target = targetOf(t), { RpcStub } = t.capnweb, target = new Target(), stub = new RpcStub(target), main = t.main();
    await Promise.all(Array.from({ length: 200 }, () => main.describe(stub)));
    t.equal(target.disposed, 0);
    dispose(stub);
    await t.until('it is disposed of', () => target.disposed === 1);
  } },
  { name: 'disposal/told to a callback', async run(t) {
    let told = 0;
    const d = await t.main().makeDisposable(() => { told++; });
    const again = d.dup();
    t.equal(await d.ping(), 'pong');
    dispose(d);
    t.equal(await again.ping(), 'pong');
    t.equal(told, 0);
    dispose(again);
    await t.until('it is told', () => told === 1);
  } },
  { name: "disposal/a server's own, passed back, then disposed of", server: 'ours', // npm cannot send on its own stub that came back
    async run(t) {
    const main = t.main();
    await disposed(t, main, 1, async () => {
      const c = await main.makeCounter(1);
      await main.hold(c);
      dispose(c);
      const again = await main.held();
      t.equal(await again.increment(), 2);
      dispose(again);
      await main.release();
    });
  } },
  { name: 'disposal/when the connection closes', async run(t) {
    const { main } = t.other(), link = t.session();
    t.lost(link);
    await disposed(t, main, 5, async () => {
      const tree = await link.main.tree(), two = [await link.main.makeCounter(1), link.main.makeCounter(2)];
      t.equal(await two[1].value, 2);
      t.equal(await tree.list[0].value, 20);
      link.close();
    });
  } },
  { name: 'disposal/when the link is cut', async run(t) {
    const { main } = t.other(), link = t.session();
    t.lost(link);
    await disposed(t, main, 1, async () => { t.equal(await (await link.main.makeCounter(1)).value, 1); link.transport.cut(); });
  } },
  { name: "disposal/the client's when the connection closes", async run(t) {
    const Target = targetOf(t), target = new Target(), link = t.session();
    t.lost(link);
    await link.main.hold(target);
    t.equal(target.disposed, 0);
    link.close();
    await t.until('it is disposed of', () => target.disposed === 1);
  } },
  { name: 'disposal/of the main stub ends the connection', async run(t) {
    const link = t.session(), { main } = t.other();
    t.lost(link);
    await disposed(t, main, 1, async () => { t.equal(await (await link.main.makeCounter(1)).value, 1); dispose(link.main); });
    await t.until('the connection is closed', () => link.transport.closed !== undefined);
  } },
];
