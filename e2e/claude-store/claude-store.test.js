// The real Claude Agent SDK with its sessions in Mooring: begun on one machine, gone on with on another, and all that the SDK does with a store.

import { foldSessionSummary, deleteSession, forkSession, getSessionInfo, getSessionMessages, getSubagentMessages, importSessionToStore, InMemorySessionStore, listSessions, listSubagents, renameSession, tagSession } from "@anthropic-ai/claude-agent-sdk";
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import * as readline from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { ClaudeSessionStore } from "../../clients/js/dist/src/claude-session-store.js";
import { open } from "../../clients/js/dist/src/index.js";
import { Model } from "../claude/model.js";
import { Commands, folder, output, repo, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";

const here = (file) => fileURLToPath(new URL(file, import.meta.url));

/** A session on a server, and a ref to it for each machine. */
async function created(t) {
  const server = await Server.start(t);
  const client = await open({ home: await folder(t, "outbox") });
  t.after(() => client.close());
  const { session, batch } = (await client.space(await server.owner())).create();
  const { ref } = batch.share({ rights: ["read", "append"] });
  (await (await batch.commit()).wait()).check();
  return { session, ref: ref.text };
}

/** A machine with nothing on it but a ref: another home folder, another place of the project. */
class Machine {
  constructor(t, model, ref, home, cwd) {
    Object.assign(this, { t, ref, home, cwd });
    this.env = {
      PATH: process.env.PATH, HOME: home, TMPDIR: home, CLAUDE_CONFIG_DIR: path.join(home, ".claude"), ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: "sk-ant-scripted",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1",
    };
  }

  static async make(t, model, ref) {
    return new Machine(t, model, ref, await folder(t, "machine"), await folder(t, "project"));
  }

  /** Begins to work on a prompt; what comes of it is in messages. */
  begin(prompt, more = {}) {
    const { home, ref, env, cwd } = this;
    const child = spawn(process.execPath, [here("machine.js"), JSON.stringify({ home: path.join(home, "outbox"), ref, project: "app", prompt, env, cwd, ...more })], { stdio: ["ignore", "pipe", "inherit"], detached: true });
    const messages = [];
    readline.createInterface({ input: child.stdout }).on("line", (line) => messages.push(JSON.parse(line)));
    const end = () => {
      try {
        process.kill(-child.pid, "SIGKILL"); // Claude Code with it
      } catch {} // it is gone
    };
    this.t.after(end);
    return { child, messages, end, ended: once(child, "close") };
  }

  /** Works on a prompt to its end, and gives the messages. */
  async work(prompt, more) {
    const { messages, ended } = this.begin(prompt, more);
    const [code] = await ended;
    assert.equal(code, 0, JSON.stringify(messages));
    assert.equal(messages.find((m) => m.subtype === "mirror_error"), undefined);
    return messages;
  }
}

const texts = (messages) => messages.map(({ role, content }) => `${role}: ${typeof content === "string" ? content : content.map((c) => c.text ?? c.name ?? c.type).filter((text) => !text.startsWith("<system-reminder>")).join(" ")}`);

test("a session that is begun on one machine is resumed on another, which has nothing but a ref", { timeout: 120_000 }, async (t) => {
  const { session, ref } = await created(t), model = await Model.start(t);
  const [first, second] = [await Machine.make(t, model, ref), await Machine.make(t, model, ref)];
  model.script([{ text: "I make it." }, { call: "Bash", input: { command: "echo made", description: "Say made" } }], [{ text: "It is blue." }]);
  const messages = await first.work("Make the button blue.");
  const { session_id: id, result } = messages.at(-1);
  assert.equal(result, "It is blue.");
  await fs.rm(first.home, { recursive: true, maxRetries: 5 });

  model.script([{ text: "Blue, as you said." }]);
  const resumed = (await second.work("What colour has it?", { resume: id })).at(-1);
  assert.deepEqual([resumed.session_id, resumed.result], [id, "Blue, as you said."]);
  const seen = texts(model.shown.at(-1)).join("\n");
  for (const text of ["Make the button blue.", "I make it.", "It is blue.", "What colour has it?"]) assert.equal(seen.split(text).length, 2, `${text} in\n${seen}`);

  // Killed in the middle of a turn, while the model speaks: what was said before is there, and the other machine goes on.
  model.script([{ text: "Let me see." }, { call: "Bash", input: { command: "echo seen", description: "Say seen" } }], [{ text: "Half an ans" }, { until: new Promise(() => {}) }]);
  const killed = second.begin("And its size?", { resume: id, flush: "eager" });
  const store = new ClaudeSessionStore(session, { project: "app", foldSessionSummary }), key = { projectKey: "", sessionId: id };
  const inStore = async (text) => JSON.stringify(await store.load(key)).includes(text);
  await until("the call's result is in the store", () => inStore('"stdout":"seen"'));
  killed.end();
  await killed.ended;
  const third = await Machine.make(t, model, ref);
  model.script([{ text: "Small." }]);
  assert.equal((await third.work("Well?", { resume: id })).at(-1).result, "Small.");
  const again = texts(model.shown.at(-1)).join("\n");
  for (const text of ["Make the button blue.", "Blue, as you said.", "And its size?", "Let me see.", "Well?"]) assert.equal(again.split(text).length, 2, `${text} in\n${again}`);

  const uuids = (await store.load(key)).flatMap(({ uuid }) => uuid ?? []);
  assert.equal(new Set(uuids).size, uuids.length);
  const listed = await store.listSessionSummaries("");
  assert.deepEqual(listed.map((s) => s.sessionId), [id]);
  assert.equal(foldSessionSummary(undefined, key, await store.load(key), { mtime: 1 }).data.firstPrompt, listed[0].data.firstPrompt);
});

test("the program of docs/claude.md goes on with a session elsewhere", { timeout: 120_000 }, async (t) => {
  const server = await Server.start(t), model = await Model.start(t), commands = await Commands.with(t), doc = await fs.readFile(repo("docs/claude.md"), "utf8");
  const [, program] = /^```js\n([^]*?)^```$/m.exec(doc), [, line] = /^mooring (share .*)$/m.exec(doc);
  const id = (await commands.run(["session", "create", "--label", "claude", "--owner", await server.owner()])).trim();
  let session = "";
  for (const [prompt, answer] of [["Make the button blue.", "It is blue."], ["What colour has it?", "Blue, as you said."]]) {
    const { env, cwd, home } = await Machine.make(t, model);
    await fs.mkdir(path.join(cwd, "node_modules"));
    await fs.symlink(repo("clients/js"), path.join(cwd, "node_modules", "mooring-client"));
    await fs.symlink(here("node_modules/@anthropic-ai"), path.join(cwd, "node_modules", "@anthropic-ai"));
    await fs.writeFile(path.join(cwd, "main.mjs"), program);
    await commands.run(line.replace(/ses_\S+/, id).split(" ").map((word) => (word === "claude.ref" ? path.join(cwd, word) : word)));
    model.script([{ text: answer }]);
    const said = (await output(process.execPath, ["main.mjs", prompt, session].filter(Boolean), { cwd, env })).trim();
    assert.equal(said.slice(37), answer);
    session = said.slice(0, 36);
    await fs.rm(home, { recursive: true, maxRetries: 5 });
  }
  const seen = texts(model.shown.at(-1)).join("\n");
  for (const text of ["Make the button blue.", "It is blue.", "What colour has it?"]) assert.equal(seen.split(text).length, 2, `${text} in\n${seen}`);
});

test("the SDK's own calls do with it what they do with the SDK's store in memory", { timeout: 60_000 }, async (t) => {
  const { session } = await created(t), dir = await folder(t, "project"), config = await folder(t, "config");
  const stores = [new ClaudeSessionStore(session, { foldSessionSummary }), new ClaudeSessionStore(session, { project: "without summaries" }), new InMemorySessionStore()];
  process.env.CLAUDE_CONFIG_DIR = config;
  t.after(() => delete process.env.CLAUDE_CONFIG_DIR);

  // A session as Claude Code has it on its disk, with a subagent's transcript.
  const id = "2f1b9a6e-1111-4000-8000-000000000001", real = await fs.realpath(dir);
  const line = (n, type, text, more) => ({ parentUuid: n === 0 ? null : `00000000-0000-4000-8000-00000000000${n - 1}`, isSidechain: false, type, uuid: `00000000-0000-4000-8000-00000000000${n}`, timestamp: `2026-01-01T00:00:0${n}.000Z`, sessionId: id, cwd: real, version: "2.1.332", userType: "external", message: type === "user" ? { role: "user", content: text } : { id: `msg_${n}`, type: "message", role: "assistant", model: "m", content: [{ type: "text", text }] }, ...more });
  const folderOf = path.join(config, "projects", real.replace(/[^A-Za-z0-9]/g, "-"));
  const write = async (file, lines) => {
    await fs.mkdir(path.dirname(file), { recursive: true });
    await fs.writeFile(file, lines.map((l) => `${JSON.stringify(l)}\n`).join(""));
  };
  await write(path.join(folderOf, `${id}.jsonl`), [line(0, "user", "Make it blue."), line(1, "assistant", "It is blue."), { type: "custom-title", customTitle: "Blue", sessionId: id }]);
  await write(path.join(folderOf, id, "subagents", "agent-a1.jsonl"), [line(0, "user", "Look.", { isSidechain: true, agentId: "a1" }), line(1, "assistant", "Seen.", { isSidechain: true, agentId: "a1" })]);

  const results = [];
  for (const sessionStore of stores) {
    const options = { dir, sessionStore }, said = [], say = (name, what) => said.push([name, JSON.parse(JSON.stringify(what))]); // what is undefined is not there
    const infos = async () => (await listSessions(options)).map(({ lastModified, fileSize, ...info }) => ({ ...info, recent: Math.abs(Date.now() - lastModified) < 60_000 }));
    await importSessionToStore(id, sessionStore, { dir, batchSize: 2 });
    say("messages", (await getSessionMessages(id, options)).map((m) => [m.uuid, m.message]));
    say("subagents", await listSubagents(id, options));
    say("a subagent's", (await getSubagentMessages(id, "a1", options)).map((m) => [m.uuid, m.message]));
    say("list", await infos());
    await renameSession(id, "Green", options);
    await tagSession(id, "colour", options);
    say("renamed", await infos());
    const { customTitle, tag, firstPrompt } = await getSessionInfo(id, options);
    say("info", { customTitle, tag, firstPrompt });
    const fork = await forkSession(id, { ...options, title: "A fork" });
    say("fork", (await getSessionMessages(fork.sessionId, options)).map((m) => m.message));
    say("both", (await infos()).map((s) => s.customTitle).sort());
    await deleteSession(id, options);
    say("deleted", [(await infos()).map((s) => s.customTitle), await getSessionMessages(id, options), await listSubagents(id, options)]);
    results.push(said);
  }
  assert.equal(results[2].find(([name]) => name === "messages")[1].length, 2);
  assert.deepEqual(results[0], results[2]);
  assert.deepEqual(results[1], results[2]);

  // Importing again doubles nothing that has a uuid.
  for (let n = 0; n < 2; n++) await importSessionToStore(id, stores[0], { dir });
  assert.deepEqual((await getSessionMessages(id, { dir, sessionStore: stores[0] })).map((m) => m.uuid), [0, 1].map((n) => line(n, "user").uuid));
});

test("the compiler takes it for a SessionStore", async (t) => {
  const dir = await fs.mkdtemp(here("types-"));
  t.after(() => fs.rm(dir, { recursive: true, force: true }));
  await fs.writeFile(path.join(dir, "main.mts"), `
    import { foldSessionSummary, type Options, type SessionStore } from "@anthropic-ai/claude-agent-sdk";
    import { ClaudeSessionStore } from "../../../clients/js/dist/src/claude-session-store.js";
    import type { Session } from "../../../clients/js/dist/src/index.js";
    export const storeOf = (session: Session): SessionStore => new ClaudeSessionStore(session, { foldSessionSummary });
    export const options = (session: Session): Options => ({ sessionStore: storeOf(session), resume: "id" });
  `);
  await promisify(execFile)(repo("clients/js/node_modules/.bin/tsc"), [
    "--ignoreConfig", "--strict", "--exactOptionalPropertyTypes", "--noEmit", "--skipLibCheck", "--target", "es2022", "--lib", "es2023,esnext.disposable,dom", "--module", "nodenext",
    "--typeRoots", repo("clients/js/node_modules/@types"), "--types", "node", path.join(dir, "main.mts"),
  ], { cwd: dir }).catch((err) => assert.fail(err.stdout));
});
