// The agent of main.go in JavaScript: it works on a plan together with others, in either language.
//
//   npm install /path/to/mooring/clients/js/mooring-client-0.1.0.tgz
//   node plan.mjs plan.ref ann

import { readFile } from "node:fs/promises";
import { open } from "mooring-client";

const [refFile, name] = process.argv.slice(2);
if (!name) {
  console.error("usage: node plan.mjs REF-FILE NAME");
  process.exit(1);
}
const client = await open({ home: `${name}-outbox` });
try {
  await work(await client.session(await readFile(refFile, "utf8")));
} finally {
  await client.close();
}

// Takes open steps until all are done.
async function work(plan) {
  for (;;) {
    const { entries, cursor, hash } = await plan.snapshot({ keys: ["step/"] });
    let done = 0;
    for (const entry of entries.values()) {
      let { state, title } = JSON.parse(entry.payload);
      if (state === "open") state = await take(plan, entry, title);
      if (state === "done") done++;
    }
    if (done === entries.size) {
      console.log(`${name}: all ${done} steps are done`);
      return;
    }
    // What the others have taken may be done with the next change of a step.
    for await (const event of plan.follow({ after: cursor, hash, keys: ["step/"] })) if (!event.hidden) break;
  }
}

// Takes a step, unless another was faster, and does it. It returns the step's state.
async function take(plan, { key, cursor }, title) {
  const taking = plan.batch();
  const taken = taking.patch(key, { state: "taken", by: name }).expectKey(cursor);
  const results = await (await taking.commit()).wait();
  if (results.of(taken).reason === "conflict") return "taken";
  results.check();
  console.log(`${name}: ${title}`); // the work itself
  const finished = plan.batch();
  finished.patch(key, { state: "done" });
  finished.add("plan", "done", 1);
  (await (await finished.commit()).wait()).check();
  return "done";
}
