// Values of every type, both ways.

import { values, describe, describeAll, describeBody } from '../values.mjs';
import { both } from '../trial.mjs';

const blobs = (name) => /blob/.test(name);

// From Node 24 on a blob's stream gives its end only after the package's client has sent the batch, which goes without it.
const late = Number(process.versions.node.split('.')[0]) >= 24;

// whole runs a scenario that sends a blob with something in it: in a batch that goes without its end our server has to say so.
// (npm's waits for it for ever.)
function whole(scenario) {
  if (!late) return scenario;
  const { on, run } = scenario;
  return { ...scenario, on: on?.filter((transport) => transport !== 'batch'), batch: 'ours', async run(t) {
    if (t.transport !== 'batch') return run(t);
    await t.rejects(run(t), 'Error', 'the batch ended before this was resolved or closed');
  } };
}
const all = [];
for (const [name, since, make, says, theirs = name] of values) {
  // In a batch npm's client sends what a stream gives at once, and its server sends no streams at all.
  const sent = name === 'large blob' ? ['ws'] : both;
  const on = blobs(name) ? ['ws'] : both, batch = name === 'large blob' ? undefined : 'ours';
  const blob = name === 'blob' ? whole : (scenario) => scenario;
  all.push(blob({ name: `values/sent/${name}`, since, on: sent, async run(t) { t.equal(await t.main().describe(make()), says); } }));
  if (theirs === name) {
    all.push({ name: `values/received/${name}`, since, on, batch: 'ours', async run(t) { t.equal(await describeAll(await t.main().make(name)), says); } });
  }
  all.push(blob({ name: `values/echoed/${name}`, since, on, batch, async run(t) { t.equal(await describeAll(await t.main().echo(make())), says); } }));
}

all.push(
  { name: 'values/all at once', on: both, async run(t) {
    const some = values.filter(([name, since]) => since === '0.4.0' && !/long|many|deep/.test(name));
    const got = await t.main().echo(some.map((v) => v[2]()));
    t.equal(got.map(describe), some.map((v) => v[3]));
  } },
  { name: 'limits/depth', async run(t) {
    const nest = (n, wrap) => { let v = 1; for (let i = 0; i < n; i++) v = wrap(v); return v; };
    t.equal(await t.main().describe(nest(60, (v) => [v])), '['.repeat(60) + '1' + ']'.repeat(60));
    // Deeper than it, capnweb 0.4.0 itself refuses to send.
    const most = t.version === '0.4.0' ? 60 : 250;
    t.equal(await t.main().echo(nest(most, (v) => [v])), nest(most, (v) => [v]));
    t.equal(await t.main().echo(nest(most, (a) => ({ a }))), nest(most, (a) => ({ a })));
  } },
  { name: 'limits/bigint', since: '0.12.0', async run(t) {
    t.equal(await t.main().echo(10n ** 16383n), 10n ** 16383n);
    const link = t.session();
    t.lost(link);
    await t.rejects(link.main.echo(10n ** 16384n));
    t.equal(await t.main().square(2), 4);
  } },
  { name: 'limits/message', since: '0.12.0', async run(t) {
    t.equal((await t.main().echo('x'.repeat(10 * 1024 * 1024))).length, 10 * 1024 * 1024);
  } },
  { name: 'values/toJSON', on: both, async run(t) { t.equal(await t.main().echo({ a: 1 }), { a: 1 }); } },
  { name: 'values/what cannot be sent', on: both, async run(t) {
    await t.rejects((async () => t.main().echo(Object.create({ proto: 1 })))(), 'TypeError');
  } },
  whole({ name: 'values/blobs/echoBlob', since: '0.8.0', batch: 'ours', async run(t) {
    const blob = await t.main().echoBlob(new Blob(['a', 'bc'], { type: 'x/y' }));
    t.equal([blob.type, await blob.text()], ['x/y', 'abc']);
  } }),
  whole({ name: 'values/blobs/every byte', since: '0.8.0', batch: 'ours', async run(t) {
    const bytes = Uint8Array.from({ length: 256 }, (_, i) => i);
    t.equal(new Uint8Array(await (await t.main().echoBlob(new Blob([bytes]))).arrayBuffer()), bytes);
  } }),
  whole({ name: 'values/blobs/several in one value', since: '0.8.0', batch: 'ours', async run(t) {
    const got = await t.main().echo({ a: new Blob(['1']), list: [new Blob(['22']), new Blob(['333'])] });
    t.equal(await Promise.all([got.a, ...got.list].map((b) => b.text())), ['1', '22', '333']);
  } }),

  { name: 'fetch/request with a body', since: '0.5.0', on: both, async run(t) {
    const r = new Request('https://example.com/a?b=c', { method: 'PUT', headers: { 'x-a': '1' }, body: 'some body' });
    t.equal(await t.main().describeBody(r), 'PUT https://example.com/a?b=c content-type=text/plain;charset=UTF-8;x-a=1 some body');
  } },
  { name: 'fetch/request without a body', since: '0.5.0', on: both, async run(t) {
    t.equal(await t.main().describeBody(new Request('https://example.com/', { headers: { 'x-a': '1' } })), 'GET https://example.com/ x-a=1 (none)');
  } },
  { name: 'fetch/response with a body', since: '0.5.0', on: both, async run(t) {
    const r = new Response('some body', { status: 404, statusText: 'Not there', headers: { 'x-a': '1' } });
    t.equal(await t.main().describeBody(r), '404 Not there content-type=text/plain;charset=UTF-8;x-a=1 some body');
  } },
  { name: 'fetch/response without a body', since: '0.5.0', on: both, async run(t) {
    t.equal(await t.main().describeBody(new Response(null, { status: 204 })), '204   (none)');
  } },
  { name: 'fetch/request received', since: '0.5.0', batch: 'ours', async run(t) {
    t.equal(await describeBody(await t.main().makeRequest()), 'POST https://example.com/made x-made=yes request body');
  } },
  { name: 'fetch/response received', since: '0.5.0', batch: 'ours', async run(t) {
    t.equal(await describeBody(await t.main().makeResponse()), '201 Made x-made=yes response body');
  } },
  { name: 'fetch/request echoed', since: '0.5.0', on: both, async run(t) {
    const r = new Request('https://example.com/a', { method: 'POST', headers: { 'x-a': '1' }, body: new Uint8Array([65, 66]) });
    t.equal(await describeBody(await t.main().echo(r)), 'POST https://example.com/a x-a=1 AB');
  } },
  { name: 'fetch/response echoed', since: '0.5.0', on: both, async run(t) {
    t.equal(await describeBody(await t.main().echo(new Response('x', { headers: { 'content-type': 'a/b' } }))), '200  content-type=a/b x');
  } },
);
export default all;
