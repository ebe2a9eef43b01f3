// Prompts to the real opencode while its runner, the server and opencode itself are killed at random moments: by mooring run, and by mooring acp behind
// an editor. None is handed over twice, none is lost, and each has one end, which says what opencode got. PROMPTS says how many there are.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { Commands, Server } from "../rig/mooring.js";
import { descendants, kill, withEnvironment } from "../rig/processes.js";
import { Prompts } from "../rig/prompts.js";
import { Run } from "../rig/run.js";
import { choices } from "../rig/seed.js";
import { until } from "../rig/wait.js";
import { Editor } from "./editor.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";

const count = Math.ceil(Number(process.env.PROMPTS ?? 12) / 2);

/** How many prompts may wait: the kills are to fall among all of them. */
const waiting = 3;

/** How long a machine that does much else may need for opencode to start and to answer, in ms. */
const patience = 180_000;

/**
 * Asks prompts in the session of a runner during a storm, and checks what became of them. `begin` makes the runner, of a machine and a person's
 * commands: its `session`, the number of its process (`pid`), whether that has ended (`over`), `kill`, `start` after that, `end`, and what it has `said`.
 */
async function storm(t, begin) {
  const random = choices(t);
  const server = await Server.start(t);
  const model = await Model.start(t);
  const machine = await Machine.with(t, "storm", { share: server.origin, model });
  const commands = await Commands.with(t);
  await commands.run(["session", "list", "--owner", await server.owner()]);
  const prompts = new Prompts(count);
  model.otherwise = (messages) => {
    prompts.seen(messages);
    const text = [{ until: () => pause(random.below(200)) }, { text: "It " }, { until: () => pause(random.below(400)) }, { text: "is done." }];
    return messages.at(-1).role === "user" && random.chance(0.3) ? [...text, { call: "bash", input: { command: "echo said", description: "Say it" } }] : text;
  };
  const runner = await begin(machine, commands);
  const phone = path.join(machine.project, "..", "phone.ref");
  await commands.run(["share", runner.session, "--rights", "read,ask", "--to", phone]);
  const person = await Commands.with(t, "phone"); // with an outbox of its own
  const requests = async () => (await person.run(["session", "requests", `@${phone}`, "--all", "--json"])).split("\n").filter((l) => l !== "").map((l) => JSON.parse(l)).filter((q) => q.kind === "prompt");
  const isOver = (q) => q.state !== "open" && q.state !== "claimed";

  // After nearly each prompt something is killed: at once, at any moment of its turn, or when the model is asked. A runner whose first agent is killed ends, as
  // one does whose agent cannot be started; it is started again.
  const kills = { runner: 0, server: 0, agent: 0 };
  const stages = {}; // that the runner's journal had, of each prompt; the journal is written anew at times
  const readJournal = async () => {
    const lines = (await fs.readFile(path.join(commands.home, "runs", `${runner.session}.jsonl`), "utf8")).split("\n").slice(0, -1);
    for (const { prompt } of lines.map((line) => JSON.parse(line))) if (prompt !== undefined) (stages[prompt.request] ??= new Set()).add(prompt.stage);
  };
  const killed = {
    runner: async () => {
      await runner.kill();
      await pause(random.below(300));
      await runner.start();
    },
    server: async () => {
      await server.kill();
      await pause(random.below(1500));
      await server.start();
    },
    agent: () => {
      const all = descendants(runner.pid);
      if (all.length > 0) kill(random.of(all));
    },
  };
  const moments = [
    () => pause(random.below(400)),
    () => pause(random.below(4000)),
    async (asked) => {
      await until("the model is asked", () => model.asked > asked, 10_000).catch(() => {}); // or not: the agent is being started
      await pause(random.below(800));
    },
  ];
  const ask = async () => {
    for (let n = 0; n < count; n++) {
      const asked = model.asked;
      await person.run(["session", "ask", `@${phone}`, "prompt", prompts.text(n), "--id", `p${n}`]);
      if (random.chance(0.8)) {
        await random.of(moments)(asked);
        const victim = random.of(["runner", "server", "agent", "agent"]);
        await killed[victim]();
        kills[victim]++;
        await readJournal();
      }
      await until("the prompts go on", async () => {
        if (runner.over) await runner.start();
        return (await requests()).filter(isOver).length >= n + 1 - waiting;
      }, patience);
    }
  };
  const told = async (err) => {
    t.diagnostic(`killed: ${JSON.stringify(kills)}`);
    t.diagnostic(runner.said);
    t.diagnostic(JSON.stringify(await requests().catch((err) => err.message)));
    throw err;
  };
  await ask().catch(told);
  await until("every prompt has its end", async () => {
    if (runner.over) await runner.start();
    return (await requests()).filter(isOver).length === count;
  }, patience).catch(told);
  assert.equal(await runner.end(), 0, runner.said);
  assert.deepEqual(withEnvironment(machine.home), [], "nothing of opencode is left");

  // What the model got is what the ends say, and a prompt's end is unknown only if its agent or runner was killed while it was handed over.
  await readJournal();
  const list = await requests();
  assert.deepEqual(list.map((q) => q.request).toSorted(), Array.from({ length: count }, (_, n) => `p${n}`).toSorted(), "each is one request");
  const { messages } = JSON.parse(await commands.run(["session", "export", runner.session]));
  const ends = {};
  const wrong = [];
  for (const q of list) {
    const n = Number(q.request.slice(1));
    const turn = messages.find((m) => m.info.id === `turn_${q.request}`);
    const [user, ...more] = messages.filter((m) => m.info.role === "user" && m.parts.some((p) => p.text?.includes(prompts.text(n))));
    let end = q.state;
    let [least, most] = [1, 1];
    if (q.state === "unknown") {
      least = 0;
      if (!stages[q.request].has("handing") || stages[q.request].has("heard")) wrong.push(`${q.request} is unknown, and was ${[...stages[q.request]]}`);
      if (turn.parts.length > 0) wrong.push(`${q.request} is unknown, and opencode had begun: ${JSON.stringify(turn.parts)}`);
    } else if (/did not get it/.test(q.answer?.error)) [end, most, least] = ["refused", 0, 0];
    else if (q.answer?.error !== undefined) [end, least] = ["interrupted", 0]; // it has said something, and may not have asked the model yet
    else if (q.state !== "answered" || q.answer.stopReason !== "end_turn") wrong.push(`${q.request} ended as ${JSON.stringify(q)}`);
    ends[end] = (ends[end] ?? 0) + 1;
    if (prompts.begun[n] < least || prompts.begun[n] > most) wrong.push(`${q.request} ended as ${end}, and the model was asked to begin ${prompts.begun[n]} times: ${JSON.stringify(q)}`);
    if (user?.info.id !== `user_${q.request}` || more.length > 0) wrong.push(`${q.request} is not one message`);
    if (turn?.info.time.completed === undefined) wrong.push(`the turn of ${q.request} has no end`);
  }
  t.diagnostic(`${count} prompts; ends ${JSON.stringify(ends)}; kills ${JSON.stringify(kills)}; doubled ${prompts.doubled.length + prompts.begun.filter((times) => times > 1).length}; lost ${count - list.filter(isOver).length}`);
  assert.deepEqual(prompts.doubled, [], "at the model");
  assert.deepEqual(wrong, []);
  assert.ok(ends.answered > 0, "some were answered");
  await commands.run(["session", "verify", runner.session]);
}

test("over kills each prompt to mooring run is handed to opencode at most once and has one end", async (t) => {
  await storm(t, async (machine, commands) => {
    const run = await Run.start(t, commands, { dir: machine.project, agent: machine.agent }, []);
    return {
      session: run.session,
      get pid() { return run.pid; },
      get over() { return run.over; },
      get said() { return run.said; },
      kill: () => run.end("SIGKILL"),
      start: () => run.again(),
      end: () => run.end("SIGINT"),
    };
  });
});

test("over kills each prompt to mooring acp, behind an editor, is handed to opencode at most once and has one end", async (t) => {
  await storm(t, async (machine, commands) => {
    let editor;
    let said = "";
    const begun = async (method, params) => {
      editor = Editor.start(t, commands, machine, []);
      await editor.initialize();
      return editor.request(method, { cwd: machine.project, mcpServers: [], ...params });
    };
    const { sessionId } = await begun("session/new", {});
    const end = async (signal) => {
      const code = await editor.end(signal);
      said += editor.said;
      return code;
    };
    return {
      session: sessionId,
      get pid() { return editor.pid; },
      get over() { return editor.over; },
      get said() { return said + editor.said; },
      kill: () => end("SIGKILL"),
      start: () => until("the editor loads its session", () => begun("session/load", { sessionId }).then(() => true, async (err) => {
        await end("SIGKILL");
        throw err; // opencode was killed, or the server is away
      }), patience),
      end: () => end(),
    };
  });
});
