// The real opencode, tied to a session by mooring attach that is its share server as well: one session, recorded once, over kills of all.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Commands } from "../rig/mooring.js";
import { choices } from "../rig/seed.js";
import { Storm } from "../rig/storm.js";
import { until } from "../rig/wait.js";
import { held } from "./held.js";
import { rig, same } from "./tied.js";

/** The sessions that the server has. */
const sessions = async (r) => (await r.lines(["session", "list", "--json"])).map((s) => s.id);

/** Gives up waiting for an opencode that is being started: it may never answer what came too early. */
const soon = (asked) => Promise.race([asked, pause(10_000, undefined, { ref: false }).then(() => assert.fail("no answer"))]);

/** Shares a session of opencode's, which asks its share server once, and gives the link. */
const share = (r, id, within) => until("it is shared", async () => (await soon(r.machine.ask("POST", `/session/${id}/share`))).share.url, within);

test("what is tied is shared as it is recorded, and the rest as by a relay", async (t) => {
  const r = await rig(t, { listen: true });
  r.model.script([{ text: "Hello." }]);
  await r.machine.prompt(r.id, "Say hello.");
  const url = await share(r, r.id);
  assert.match(url, new RegExp(`^${r.server.origin}/share/[A-Za-z0-9_-]+$`), "the link is the real server's");
  r.model.script([{ text: "Hello **again**." }]);
  assert.equal((await r.ended(await r.ask("prompt", "And again."))).answer.text, "Hello **again**.");
  await same(r);
  await until("the share equals opencode's session", async () => {
    assert.deepEqual(await held(url), await r.machine.state(r.id));
    return true;
  });
  assert.match(await (await fetch(url)).text(), /<strong>again<\/strong>/);
  const items = await (await fetch(`${r.server.origin}/api${new URL(url).pathname}/data`)).json();
  assert.ok(items.some((item) => item.type === "model"), "opencode sends its models to the share server alone");
  assert.deepEqual(await sessions(r), [r.attach.session]);

  // Another session of the same opencode, which nobody ties.
  const { id: other } = await r.machine.ask("POST", "/session", {});
  const second = await share(r, other);
  r.model.script([{ text: "Beside it." }]);
  await r.machine.prompt(other, "And here?");
  await until("the other share equals opencode's session", async () => {
    assert.deepEqual(await held(second), await r.machine.state(other));
    return true;
  });
  assert.equal((await sessions(r)).length, 2);

  // Tied now, it goes on in the session that it has; and the first, which nobody is attached to, is still recorded.
  await r.attach.end("SIGINT");
  const then = await r.attach.start(["--opencode-session", other], { other: true });
  assert.notEqual(then, r.attach.session);
  assert.equal((await sessions(r)).length, 2);
  r.model.script([{ text: "Not tied." }], [{ text: "Tied." }]);
  await r.machine.prompt(r.id, "Are you tied?");
  await r.machine.prompt(other, "Are you?");
  for (const [id, at] of [[r.id, url], [other, second]]) {
    await until("each share equals opencode's session", async () => {
      assert.deepEqual(await held(at), await r.machine.state(id));
      return true;
    });
  }

  // The end of a share is none of the session.
  await r.machine.ask("DELETE", `/session/${other}/share`);
  await until("the share is over", async () => (await fetch(second)).status >= 400);
  assert.ok(JSON.parse(await r.commands.run(["session", "export", then])).messages.length > 0);
  r.model.done();
});

test("over kills of attach, opencode and server the share is what opencode exports", async (t) => {
  const random = choices(t);
  const r = await rig(t, { listen: true, permission: "allow" });
  const words = "what is said here comes word by word so that it is written while others are killed and start again";
  const slowly = (text) => text.split(" ").flatMap((word) => [{ until: () => pause(random.below(80)) }, { text: `${word} ` }]);
  r.model.otherwise = (messages) =>
    messages.at(-1).role === "user" && random.chance(0.6)
      ? [{ reasoning: "A command, " }, ...slowly(words), { call: "bash", input: { command: `echo ${random.below(1000)}`, description: "Say it" } }]
      : slowly(words);
  const storm = new Storm(random);
  storm.disturb("attach", { every: 1500, down: 400, kill: () => r.attach.end("SIGKILL"), start: () => r.attach.start() });
  storm.disturb("server", { every: 3000, down: 2500, kill: () => r.server.kill(), start: () => r.server.start() });
  storm.disturb("opencode", { every: 12_000, down: 300, kill: () => r.machine.stop(), start: () => r.machine.start(r.port) });

  const rounds = 8;
  const asked = [];
  for (let n = 0; n < rounds; n++) {
    const text = `Round ${n}.`;
    if (n === 1 || n === 4) {
      // A slow machine may not have all three up at once for a minute.
      const shared = share(r, r.id, 20_000).catch(() => storm.calm(() => share(r, r.id)));
      await shared.catch((err) => {
        t.diagnostic(`${storm.failure} ${r.attach.log}`);
        throw err;
      });
    }
    if (n === 3 || n === 6) await soon(r.machine.ask("DELETE", `/session/${r.id}/share`)).catch(() => {}); // it may be killed, or the share server be away
    if (random.chance(0.5)) asked.push(await until("it is asked", () => r.ask("prompt", text)));
    else await r.machine.prompt(r.id, text).catch(() => {}); // opencode may be killed
    await pause(random.below(2500));
  }
  await storm.end();
  t.diagnostic(`killed: ${JSON.stringify(storm.kills)}`);
  assert.ok(storm.kills.attach >= 5 && storm.kills.server >= 2, "there was a storm");
  for (const id of asked) assert.equal((await r.ended(id)).state, "answered");
  const url = await share(r, r.id);
  await until("opencode rests", async () => (await r.machine.ask("GET", "/session/status"))[r.id] === undefined);
  await same(r);
  await until("the share equals opencode's session", async () => {
    assert.deepEqual(await held(url), await r.machine.state(r.id));
    return true;
  });
  const exported = await r.machine.export(r.id);
  assert.deepEqual((await held(url)).messages, exported.messages, "the share is what opencode exports");

  assert.deepEqual(await sessions(r), [r.attach.session], "it is one session");
  await r.commands.run(["session", "verify", r.attach.session]);
  const ops = (await r.lines(["session", "tail", r.attach.session, "--json"])).map((e) => e.op).filter((op) => op);
  assert.equal(new Set(ops).size, ops.length, "an op was applied twice");
});
