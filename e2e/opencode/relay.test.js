// The real opencode in front of a relay, and the real server behind it, under a storm of kills: opencode sends each change once.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Commands, Server } from "../rig/mooring.js";
import { freePort, Relay } from "../rig/relay.js";
import { choices } from "../rig/seed.js";
import { Storm } from "../rig/storm.js";
import { until } from "../rig/wait.js";
import { held } from "./held.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";

test("nothing that opencode sends is lost or doubled while relay and server are killed", async (t) => {
  const random = choices(t);
  const server = await Server.start(t);
  const model = await Model.start(t);
  const port = await freePort();
  const relay = await Relay.start(t, await server.owner(), `http://127.0.0.1:${port}`);
  const one = await Machine.with(t, "one", { share: relay.origin, model });
  await one.start(port);
  const { id } = await one.ask("POST", "/session", {});
  const { share: { url } } = await one.ask("POST", `/session/${id}/share`);
  assert.match(url, new RegExp(`^${server.origin}/share/[A-Za-z0-9_-]+$`), "the link is the real server's");

  // Kills of both, each for itself and at any moment.
  const storm = new Storm(random);
  storm.disturb("relay", { every: 1000, down: 400, kill: () => relay.kill(), start: () => relay.start() });
  storm.disturb("server", { every: 1000, down: 2500, kill: () => server.kill(), start: () => server.start() });
  const { kills } = storm;

  const slowly = (text) => text.split(" ").flatMap((word) => [{ until: () => pause(random.below(120)) }, { text: `${word} ` }]);
  const words = "what is said here comes word by word and not at once so that it is written while others are killed and start again";
  let last;
  for (let round = 0; round < 6; round++) {
    const file = `${one.project}/file${round}.txt`;
    model.script(
      [{ reasoning: "A file, " }, ...slowly(words), { call: "write", input: { filePath: file, content: `round ${round}\n` } }],
      [...slowly(words), { call: "bash", input: { command: `cat ${file}`, description: "Show it" } }],
      [...slowly(`round ${round}: ${words}`)],
    );
    await one.prompt(id, `Round ${round}`);
    const { messages } = await one.state(id);
    last = messages.findLast((m) => m.info.role === "user").info.id;
    if (round === 2 || round === 4) {
      await one.ask("POST", `/session/${id}/revert`, { messageID: last });
      await pause(random.below(2000));
    }
    if (round === 2) await one.ask("POST", `/session/${id}/unrevert`);
  }
  await storm.end();
  t.diagnostic(`the relay was killed ${kills.relay} times, the server ${kills.server} times`);
  assert.ok(kills.relay > 5 && kills.server > 2, "there was a storm");
  model.done();

  await until("the share equals opencode's session", async () => {
    assert.deepEqual(await held(url), await one.state(id));
    return true;
  });
  const exported = await one.export(id);
  assert.deepEqual((await held(url)).messages, exported.messages, "the share is what opencode exports");
  assert.ok(exported.messages.length >= 15, `there are ${exported.messages.length} messages`);

  // It is one session, whose log holds and folds to that.
  const commands = await Commands.with(t);
  const list = (await commands.run(["session", "list", "--json", "--owner", await server.owner()])).split("\n");
  assert.equal(list.length, 1, list.join("\n"));
  const ref = await server.ownerOf(JSON.parse(list[0]).id ?? JSON.parse(list[0]).session);
  await commands.run(["session", "verify", ref]);
  const events = (await commands.run(["session", "tail", ref, "--json"])).split("\n").map((line) => JSON.parse(line));
  const ops = events.map((e) => e.op).filter((op) => op);
  assert.equal(new Set(ops).size, ops.length, "an op was applied twice");
});

test("what is shared, continued and unshared while the server is away is so once it is back", async (t) => {
  const server = await Server.start(t);
  const model = await Model.start(t);
  const port = await freePort();
  const relay = await Relay.start(t, await server.owner(), `http://127.0.0.1:${port}`);
  await server.kill();
  const one = await Machine.with(t, "one", { share: relay.origin, model, mode: "auto" });
  await one.start(port);
  const stays = await one.ask("POST", "/session", {});
  model.script([{ text: "Said while nobody **listened**." }]);
  await one.prompt(stays.id, "Is anybody there?");
  const url = await until("opencode has shared the session", async () => (await one.ask("GET", `/session/${stays.id}`)).share?.url);
  const ends = await one.ask("POST", "/session", {});
  const { share: { url: ended } } = await one.ask("POST", `/session/${ends.id}/share`);
  await one.ask("DELETE", `/session/${ends.id}/share`);
  await pause(2000); // opencode sends what is left a second later
  await relay.kill();
  await relay.start();
  await server.start();
  await until("the share equals opencode's session", async () => {
    assert.deepEqual(await held(url), await one.state(stays.id));
    return true;
  });
  assert.match(await (await fetch(url)).text(), /<strong>listened<\/strong>/);
  await until("what was unshared is over", async () => (await fetch(ended)).status >= 400);
  model.done();
});
