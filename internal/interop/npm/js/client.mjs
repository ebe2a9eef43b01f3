// Runs the scenarios as a client: node client.mjs VERSION ws|batch ADDRESS node|ours [PATTERN]. Each answers with a line
// of JSON: {name, error?, log?, ms}. The last line is {done: count}.

import { load, atLeast } from './load.mjs';
import { Trial } from './trial.mjs';

const [version, transport, address, server, pattern = ''] = process.argv.slice(2);
const capnweb = await load(version);
const scenarios = [];
for (const file of ['calls', 'values', 'pipelining', 'capabilities', 'disposal', 'streams', 'link', 'batch']) {
  scenarios.push(...(await import(`./scenarios/${file}.mjs`)).default);
}

let stray; // an unhandled rejection
process.on('unhandledRejection', (error) => { stray = error; });

let done = 0;
for (const { name, since = '0.4.0', node = '0.4.0', on = ['ws'], batch, server: only, loose, run } of scenarios) {
  const there = on.includes(transport) || (transport === 'batch' && batch === server);
  if (!there || !atLeast(version, since) || (server === 'node' && !atLeast(version, node)) || (only && only !== server)) continue;
  if (!new RegExp(pattern).test(name)) continue;
  const trial = new Trial({ capnweb, version, transport, address, server });
  const began = performance.now();
  const answer = { name };
  stray = undefined;
  let timer;
  try {
    await Promise.race([
      (async () => { await run(trial); await trial.finish(loose === true || loose === server); })(),
      new Promise((_, reject) => { timer = setTimeout(() => reject(new Error('not done after 20 s')), 20_000); }),
    ]);
    if (stray) throw new Error('an unhandled rejection: ' + (stray?.stack ?? stray));
  } catch (error) {
    answer.error = String(error?.stack ?? error);
    answer.log = trial.logs().map((line) => line.slice(0, 300)).slice(-40);
  }
  clearTimeout(timer);
  trial.abandon();
  answer.ms = Math.round(performance.now() - began);
  console.log(JSON.stringify(answer));
  done++;
}
console.log(JSON.stringify({ done }));
process.exit(0);
