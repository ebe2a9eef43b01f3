// The real opencode, tied to a session by mooring attach: both ways, and over kills of each.

import assert from "node:assert/strict";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as http from "node:http";
import * as path from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Attach } from "../rig/attach.js";
import { Commands, Server } from "../rig/mooring.js";
import { Prompts } from "../rig/prompts.js";
import { freePort } from "../rig/relay.js";
import { choices } from "../rig/seed.js";
import { Storm } from "../rig/storm.js";
import { until } from "../rig/wait.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";
import { ask, rig, same } from "./tied.js";

/** Stands between attach and opencode, and knows when a prompt is handed over. */
class Between {
  /** Is called before a prompt reaches opencode, and when opencode has taken it: true goes on. */
  before = async () => true;
  after = async () => true;

  async start(t, port) {
    const server = http.createServer(async (req, res) => {
      const body = await new Response(req).arrayBuffer();
      const prompts = req.url.includes("/prompt_async");
      if (prompts && !(await this.before())) return res.destroy();
      const up = http.request({ port, method: req.method, path: req.url, headers: req.headers }, async (answer) => {
        if (prompts && !(await this.after())) return res.destroy();
        res.writeHead(answer.statusCode, answer.headers);
        answer.pipe(res);
        answer.on("error", () => res.destroy());
      });
      up.on("error", () => res.destroy());
      res.on("close", () => up.destroy());
      up.end(Buffer.from(body));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => {
      server.close();
      server.closeAllConnections();
    });
    return server.address().port;
  }
}

test("opencode is recorded, prompted, stopped, and goes on after attach was ended", async (t) => {
  const r = await rig(t);
  // What is typed into opencode itself.
  r.model.script([{ reasoning: "A greeting." }, { text: "Hello " }, { text: "there." }]);
  await r.machine.prompt(r.id, "Say hello.");
  await same(r);

  // A prompt from here, and a stop.
  r.model.script([{ text: "Hello from **here**." }]);
  const first = await r.ask("prompt", "And from here?");
  const end = await r.ended(first);
  assert.equal(end.answer.text, "Hello from **here**.");
  assert.equal(end.answer.stopReason, "end_turn");
  assert.ok((await r.export()).messages.some((m) => m.info.id === end.answer.message));
  r.model.script([{ text: "Counting: one" }, { until: new Promise(() => {}) }]);
  const second = await r.ask("prompt", "Count.");
  await until("it is shown while it streams", async () => JSON.stringify(await r.export()).includes("Counting: one"));
  const turn = (await r.export()).messages.findLast((m) => m.info.role === "assistant").info.id;
  await r.ask("stop", "--message", end.answer.message); // of a turn that is over
  const stop = await r.ask("stop", "--message", turn);
  assert.deepEqual((await r.ended(stop)).answer, { stopped: true });
  assert.equal((await r.ended(second)).answer.stopReason, "cancelled");
  await same(r);

  // Ended and started again: the same session, with what was missed.
  assert.equal(await r.attach.end("SIGINT"), 0, r.attach.log);
  r.model.script([{ text: "Nobody heard that." }], [{ text: "And this is asked later." }]);
  await r.machine.prompt(r.id, "While nobody listens.");
  const third = await r.ask("prompt", "Asked while nobody listens.");
  await r.attach.start();
  assert.equal((await r.ended(third)).answer.text, "And this is asked later.");
  await same(r);
  r.model.done();
});

test("permissions and questions are asked once, and answered here or in opencode", async (t) => {
  const r = await rig(t, { env: { OPENCODE_ENABLE_QUESTION_TOOL: "1" } });
  const command = (text) => ({ call: "bash", input: { command: text, description: "Run it" } });
  const replied = (id) => until("opencode has the answer", async () => !(await r.machine.ask("GET", "/permission")).some((p) => p.id === id));
  const file = path.join(r.machine.project, "greeting.txt");

  // Allowed here, with all that it would do in what is shown.
  r.model.script([{ call: "write", input: { filePath: file, content: "hello\n" } }], [command("rm -r /nowhere")], [{ text: "Done." }]);
  const first = await r.ask("prompt", "Write a greeting, and remove it.");
  const edit = await r.open("permission");
  assert.match(edit.payload.diff[0].patch, /^\+hello$/m);
  assert.equal(edit.payload.tool.kind, "edit");
  assert.equal(edit.payload.tool.input.content, "hello\n");
  assert.deepEqual(edit.choices.map((c) => c.id), ["once", "always", "reject"]);
  assert.ok((await r.export()).messages.some((m) => m.info.id === edit.message), "it is about a message that is there");
  await r.answer(edit.request, "once");
  await replied(edit.request);

  // Refused in opencode, as in its terminal.
  const bash = await r.open("permission");
  assert.equal(bash.payload.command, "rm -r /nowhere");
  await r.machine.ask("POST", `/permission/${bash.request}/reply`, { reply: "reject", message: "not that" });
  const refused = await r.ended(bash.request);
  assert.deepEqual([refused.state, refused.choice, refused.answer], ["answered", "reject", { in: "opencode" }]);
  assert.equal((await r.ended(first)).answer.text, "Done.");

  // Asked once over restarts; answered while no attach runs; gone while no attach runs.
  r.model.script([command("echo one")], [{ text: "One." }]);
  const second = await r.ask("prompt", "One.");
  const one = await r.open("permission");
  await r.attach.end("SIGKILL");
  await r.answer(one.request, "once");
  await r.attach.start();
  assert.equal((await r.ended(second)).answer.text, "One.");
  r.model.script([command("echo two")], [{ text: "Two." }]);
  const third = await r.ask("prompt", "Two.");
  const two = await r.open("permission");
  await r.attach.end("SIGKILL");
  await r.attach.start();
  await r.attach.end("SIGKILL");
  await r.machine.ask("POST", `/permission/${two.request}/reply`, { reply: "once" });
  await r.attach.start();
  assert.equal((await r.ended(two.request)).state, "withdrawn");
  assert.equal((await r.ended(third)).answer.text, "Two.");

  // A turn that is stopped takes its permission with it, which opencode lists on.
  r.model.script([command("echo three")]);
  const fourth = await r.ask("prompt", "Three.");
  const three = await r.open("permission");
  await r.ask("stop", "--message", three.message);
  assert.equal((await r.ended(three.request)).state, "withdrawn");
  assert.equal((await r.ended(fourth)).answer.stopReason, "cancelled");
  await r.attach.end("SIGINT");
  await r.attach.start();

  // Refused here, which ends the turn. And opencode killed while it waits.
  r.model.script([command("echo four")]);
  const fifth = await r.ask("prompt", "Four.");
  const four = await r.open("permission");
  await r.answer(four.request, "reject");
  assert.equal((await r.ended(fifth)).answer.stopReason, "end_turn");
  r.model.script([command("echo five")]);
  const sixth = await r.ask("prompt", "Five.");
  const five = await r.open("permission");
  await r.machine.stop();
  await r.machine.start(r.port);
  assert.equal((await r.ended(five.request)).state, "withdrawn");
  assert.match((await r.ended(sixth)).answer.error, /ended/);

  // Questions.
  const colour = { question: "Which colour?", header: "Colour", options: [{ label: "Red", description: "a red one" }, { label: "Blue", description: "a blue one" }] };
  const size = { question: "Which size?", header: "Size", options: [{ label: "S", description: "small" }, { label: "L", description: "large" }], multiple: true };
  const question = (...list) => ({ call: "question", input: { questions: list } });
  r.model.script([question(colour)], [question(colour)], [question(colour, size)], [question(colour)], [{ text: "I see." }]);
  const seventh = await r.ask("prompt", "Ask me.");
  const here = await r.open("question");
  assert.equal(here.payload.text, "Which colour?");
  await r.answer(here.request, "2");
  const there = await r.open("question");
  await r.machine.ask("POST", `/question/${there.request}/reply`, { answers: [["Red"]] });
  assert.equal((await r.ended(there.request)).choice, "1");
  const both = await r.open("question");
  assert.equal(both.choices, undefined);
  await r.answer(both.request, "--payload", JSON.stringify({ answers: [["Blue"], ["S", "L"]] }));
  const own = await r.open("question");
  await r.machine.ask("POST", `/question/${own.request}/reply`, { answers: [["Green, rather"]] });
  assert.match((await r.ended(own.request)).reason, /Green, rather/);
  assert.equal((await r.ended(seventh)).answer.text, "I see.");
  const outputs = JSON.stringify(await r.export());
  for (const said of ['\\"Which colour?\\"=\\"Blue\\"', '\\"Which colour?\\"=\\"Red\\"', '\\"Which size?\\"=\\"S, L\\"', "Green, rather"]) assert.ok(outputs.includes(said), said);
  assert.deepEqual(await r.machine.ask("GET", "/question"), []);

  // A sub-agent's, whose messages are not in the session.
  r.model.script([{ call: "task", input: { description: "Say it", prompt: "Say it.", subagent_type: "general" } }], [command("echo six")], [{ text: "Said." }], [{ text: "It said it." }]);
  const eighth = await r.ask("prompt", "Have it said.");
  const six = await r.open("permission");
  assert.equal(six.payload.command, "echo six");
  assert.match(six.payload.session, /^ses_/);
  assert.equal(six.message, undefined);
  await r.answer(six.request, "once");
  assert.equal((await r.ended(eighth)).answer.text, "It said it.");

  assert.equal(new Set((await r.requests()).map((q) => q.request)).size, (await r.requests()).length);
  await same(r);
  r.model.done();
});

test("what is removed or reverted in opencode is so in the session", async (t) => {
  const r = await rig(t);
  const texts = async () => (await r.export()).messages.flatMap((m) => m.parts).filter((p) => p.type === "text").map((p) => p.text);
  for (const n of ["one", "two", "three", "four"]) {
    r.model.script([{ text: `Answer ${n}.` }]);
    await r.machine.prompt(r.id, `Question ${n}.`);
  }
  await same(r);
  const [, one, two] = (await r.machine.state(r.id)).messages;

  // A part and a message, while it is heard and while it is not.
  await r.machine.ask("DELETE", `/session/${r.id}/message/${one.info.id}/part/${one.parts.find((p) => p.type === "text").id}`);
  await same(r);
  assert.ok(!(await texts()).includes("Answer one."));
  await r.attach.end("SIGKILL");
  await r.machine.ask("DELETE", `/session/${r.id}/message/${two.info.id}`);
  await r.attach.start();
  await same(r);

  // Reverted, taken back, reverted and gone on.
  const three = (await r.machine.state(r.id)).messages.find((m) => m.parts.some((p) => p.text === "Question three.")).info.id;
  await r.machine.ask("POST", `/session/${r.id}/revert`, { messageID: three });
  await until("what is reverted is hidden", async () => !(await texts()).includes("Answer four."));
  assert.ok((await texts()).includes("Answer two."));
  await r.machine.ask("POST", `/session/${r.id}/unrevert`);
  await until("it is shown again", async () => (await texts()).includes("Answer four."));
  await same(r);
  await r.machine.ask("POST", `/session/${r.id}/revert`, { messageID: three });
  r.model.script([{ text: "Answer five." }]);
  assert.equal((await r.ended(await r.ask("prompt", "Question five."))).answer.text, "Answer five.");
  await same(r);
  assert.deepEqual((await texts()).filter((x) => /three|four/.test(x)), []);
  r.model.done();
});

test("a password is used and told nobody, and what cannot be tied is said", async (t) => {
  const password = "pass-8d3f9a";
  const env = { OPENCODE_SERVER_PASSWORD: password };
  const server = await Server.start(t, ["--verbose"]);
  const model = await Model.start(t);
  const port = await freePort();
  const machine = await Machine.with(t, "locked", { share: server.origin, model, permission: ask, env });
  machine.password = password;
  const commands = await Commands.with(t);
  await commands.run(["session", "list", "--owner", await server.owner()]);
  const url = ["--url", `http://127.0.0.1:${port}`];
  await assert.rejects(commands.run(["attach", "opencode", ...url]), /opencode does not answer/);
  await machine.start(port);
  const refused = async (args, why) => {
    const err = await commands.run(["attach", "opencode", ...args]).then(() => assert.fail("it was tied"), (err) => err);
    assert.match(err.message, why);
    assert.ok(!err.message.includes(password.slice(5)), err.message);
  };
  await refused(url, /wants a password: set OPENCODE_SERVER_PASSWORD/);
  await refused(["--url", `http://opencode:wrong-8d3f9a@127.0.0.1:${port}`], /refuses the password/);
  await refused(["--url", `http://opencode:${password}@127.0.0.1:${port}`], /no session/);
  await refused(["--url", `http://opencode:${password}@example.org:${port}`], /--remote/);
  const { id } = await machine.ask("POST", "/session", {});
  await refused(["--url", `http://opencode:${password}@127.0.0.1:${port}`, "--opencode-session", "ses_none"], new RegExp(`no session ses_none; it has ${id}`));

  // The session that was updated last, by the password of the environment.
  const attach = await Attach.start(t, commands.home, url, env);
  model.script([{ text: "It is open." }]);
  const asked = (await commands.run(["session", "ask", attach.session, "prompt", "Is it open?", "--wait"])).trim();
  assert.equal(asked, "It is open.");
  await assert.rejects(commands.run(["attach", "opencode", "--url", `http://opencode:${password}@127.0.0.1:${port}`]), /another mooring attach is tied/);
  const doc = await commands.run(["session", "export", attach.session]);
  assert.ok(doc.includes(id));

  // Into a session that is there: of one tie alone.
  await attach.end("SIGINT");
  const mine = (await commands.run(["session", "create"])).trim();
  const open = `http://opencode:${password}@127.0.0.1:${port}`;
  await refused(["--url", open, "--opencode-session", id, "--session", mine], new RegExp(`is recorded in ${attach.session}`));
  const { id: second } = await machine.ask("POST", "/session", {});
  await refused(["--url", open, "--opencode-session", second, "--session", attach.session], new RegExp(`has opencode's session ${id} already`));
  const into = await Attach.start(t, commands.home, ["--url", open, "--opencode-session", second, "--session", mine]);
  assert.equal(into.session, mine);
  await until("it is recorded", async () => (await commands.run(["session", "export", mine])).includes(second));
  for (const text of [doc, attach.log, into.log, server.log, await commands.run(["session", "tail", attach.session, "--json"])]) assert.ok(!text.includes(password));
});

test("a prompt is one message wherever attach was killed", async (t) => {
  const between = new Between();
  const r = await rig(t, { between });
  const tie = path.join(r.commands.home, "attached", `${r.id}.json`);
  const forget = async () => {
    const { prompt, ...rest } = JSON.parse(await fs.readFile(tie, "utf8"));
    assert.equal(prompt.stage, "handing");
    await fs.writeFile(tie, JSON.stringify(rest));
  };
  const messages = async (text) => (await r.machine.state(r.id)).messages.filter((m) => m.parts.some((p) => p.text === text));
  /** Asks, kills attach where `hook` says, does what else happens meanwhile, starts it again, and gives the answer. */
  const killed = async (hook, text, meanwhile = async () => {}) => {
    const there = new Promise((hit) => {
      between[hook] = async () => {
        between[hook] = async () => true;
        await r.attach.end("SIGKILL");
        hit();
        return false;
      };
    });
    const id = await r.ask("prompt", text);
    await there;
    await meanwhile();
    await r.attach.start();
    const end = await r.ended(id);
    assert.equal(end.state, "answered");
    const [message, ...more] = await messages(text);
    assert.deepEqual(more, [], "it is one message");
    assert.equal(message.parts.length, 1);
    assert.equal(message.parts[0].metadata.mooring.request, id);
    return end.answer;
  };
  const asked = async (times, f) => {
    const before = r.model.asked;
    await f();
    assert.equal(r.model.asked - before, times, "what the model is asked");
  };
  const answered = (text) => until("opencode has answered", async () => (await messages(text)).length === 1 && (await r.machine.state(r.id)).messages.at(-1).info.finish === "stop");

  await asked(1, async () => {
    r.model.script([{ text: "One." }]);
    assert.equal((await killed("before", "Before it was sent.")).text, "One.");
  });
  await asked(1, async () => {
    r.model.script([{ text: "Two." }]);
    assert.equal((await killed("after", "After it was sent.", () => answered("After it was sent."))).text, "Two.");
  });
  await asked(1, async () => {
    r.model.script([{ text: "Three." }]);
    assert.equal((await killed("after", "And the file was lost.", async () => {
      await forget();
      await answered("And the file was lost.");
    })).text, "Three.");
  });
  await asked(1, async () => {
    r.model.script([{ text: "Four." }]);
    assert.equal((await killed("before", "Lost before it was sent.", forget)).text, "Four.");
  });
  r.model.script([{ text: "Five." }]);
  const both = await killed("after", "And opencode was killed.", async () => {
    await r.machine.stop();
    await r.machine.start(r.port);
  });
  assert.ok(both.text === "Five." || /opencode ended/.test(both.error), JSON.stringify(both));
  await same(r);
});

test("over kills of attach, opencode and server each prompt has one fate and the session is opencode's", async (t) => {
  const random = choices(t);
  const r = await rig(t);
  const prompts = new Prompts(10);
  const words = "what is said here comes word by word and not at once";
  const slowly = (text) => text.split(" ").flatMap((word) => [{ until: () => pause(random.below(80)) }, { text: `${word} ` }]);
  r.model.otherwise = (messages) => {
    prompts.seen(messages);
    const last = messages.at(-1);
    if (last.role === "user" && random.chance(0.6)) return [...slowly(words), { call: "bash", input: { command: `echo ${random.below(1000)}`, description: "Say it" } }];
    return slowly(words);
  };

  // Kills of each, for itself and at any moment; permissions are answered on either side.
  const storm = new Storm(random);
  storm.disturb("attach", { every: 2500, down: 400, kill: () => r.attach.end("SIGKILL"), start: () => r.attach.start() });
  storm.disturb("server", { every: 5000, down: 2500, kill: () => r.server.kill(), start: () => r.server.start() });
  storm.disturb("opencode", { every: 9000, down: 500, kill: () => r.machine.stop(), start: () => r.machine.start(r.port) });
  const { kills } = storm;
  const answer = async () => {
    while (storm.raging || !(await over())) {
      await pause(300);
      try {
        // One that is being started may never answer what came too early.
        const asked = await Promise.race([r.machine.ask("GET", "/permission"), pause(5000, [], { ref: false })]);
        for (const p of asked) {
          const reply = random.of(["once", "once", "reject"]);
          if (random.chance(0.5)) await r.machine.ask("POST", `/permission/${p.id}/reply`, { reply });
          else await r.answer(p.id, reply);
        }
      } catch {} // one of them was killed, or somebody was faster
    }
  };
  const ids = [];
  const over = async () => {
    const list = (await r.requests().catch(() => [])).filter((q) => q.kind === "prompt");
    return ids.length === prompts.count && list.length === prompts.count && list.every((q) => ["answered", "unknown", "withdrawn"].includes(q.state));
  };
  const answers = answer();
  for (let n = 0; n < prompts.count; n++) {
    ids.push(await r.ask("prompt", prompts.text(n)));
    await pause(random.below(5000));
  }
  await storm.end();
  await until("every prompt has its end", over, 180_000).catch(async (err) => {
    t.diagnostic(`killed: ${JSON.stringify(kills)}`);
    t.diagnostic(r.attach.log);
    t.diagnostic(JSON.stringify(await r.requests().catch((e) => e.message), null, 1));
    t.diagnostic(JSON.stringify(await r.machine.ask("GET", "/session/status")));
    t.diagnostic(JSON.stringify((await r.machine.state(r.id)).messages.slice(-4)));
    throw err;
  });
  await answers;
  t.diagnostic(`killed: ${JSON.stringify(kills)}`);
  assert.ok(kills.attach >= 4 && kills.opencode >= 1 && kills.server >= 2, "there was a storm");

  const ends = (await r.requests()).filter((q) => q.kind === "prompt");
  assert.deepEqual(ends.filter((q) => q.state !== "answered").map((q) => [q.request, q.state, q.reason]), [], "no fate is unknown");
  t.diagnostic(`interrupted: ${ends.filter((q) => q.answer.error).length} of ${prompts.count}`);
  assert.deepEqual(prompts.doubled, [], "at the model");
  await same(r);
  const exported = await r.machine.export(r.id);
  assert.deepEqual((await r.export()).messages, exported.messages, "the session is what opencode exports");
  const users = exported.messages.filter((m) => m.info.role === "user").map((m) => m.parts.map((p) => p.text).join(""));
  assert.deepEqual(users.toSorted(), ids.map((_, n) => prompts.text(n)).toSorted(), "each prompt is one message");
  for (const q of ends.filter((q) => !q.answer.error)) {
    const m = exported.messages.find((m) => m.info.id === q.answer.message);
    assert.equal(exported.messages.find((u) => u.info.id === m.info.parentID).parts[0].metadata.mooring.request, q.request, "it is answered by its own turn");
  }
  const asks = (await r.requests()).filter((q) => q.kind === "permission");
  assert.deepEqual(asks.filter((q) => q.state === "open"), [], "nothing is asked any more");
  await r.commands.run(["session", "verify", r.attach.session]);
  const ops = (await r.lines(["session", "tail", r.attach.session, "--json"])).map((e) => e.op).filter((op) => op);
  assert.equal(new Set(ops).size, ops.length, "an op was applied twice");
});
