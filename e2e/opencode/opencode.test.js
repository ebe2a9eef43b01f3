// The real opencode against the real server. Its client never repeats a request, so servers are killed between its syncs.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Commands, Server } from "../rig/mooring.js";
import { until } from "../rig/wait.js";
import { held } from "./held.js";
import { Machine } from "./machine.js";
import { Model } from "./model.js";

/** A promise, and what fulfils it. */
function gate() {
  let open;
  const opened = new Promise((resolve) => (open = resolve));
  return { opened, open };
}

/** Waits until the server holds all that opencode does, value for value. */
async function synced(machine, session, url) {
  await until("all is synced", async () => {
    assert.deepEqual(await held(url), await machine.state(session));
    return true;
  });
}

/** An export without what an import gives another value on another machine: where the project is. */
function anywhere(doc) {
  const { projectID, directory, path, ...info } = doc.info;
  return { ...doc, info };
}

/** An export without what changes after the unshare and is no longer sent. */
function shared(doc) {
  const { share, time, ...info } = doc.info;
  return { ...doc, info: { ...info, time: { ...time, updated: 0 } } };
}

test("a session is shared, streamed, continued, reverted, imported and unshared, over killed servers", async (t) => {
  const server = await Server.start(t);
  const model = await Model.start(t);
  const config = { share: server.origin, model };
  const one = await Machine.with(t, "one", config);
  await one.start();
  const { id } = await one.ask("POST", "/session", {});
  const { share: { url } } = await one.ask("POST", `/session/${id}/share`);
  assert.match(url, new RegExp(`^${server.origin}/share/[A-Za-z0-9_-]+$`));

  // Streamed: what is done is seen while the rest is still to come.
  const rest = gate();
  model.script(
    [{ reasoning: "A file, " }, { reasoning: "then." }, { text: "I will " }, { text: "write it." }, { call: "write", input: { filePath: `${one.project}/greeting.txt`, content: "hello\n" } }],
    [{ text: "It is " }, { until: rest.opened }, { text: "written: **done**." }],
  );
  const answer = one.prompt(id, "Please write a greeting.");
  await until("the call is seen before the turn ends", async () => {
    const parts = (await held(url)).messages.flatMap((m) => m.parts);
    return parts.some((p) => p.tool === "write" && p.state.status === "completed") && !JSON.stringify(parts).includes("**done**");
  });
  rest.open();
  await answer;
  await synced(one, id, url);
  const page = await (await fetch(url)).text();
  assert.match(page, /<strong>done<\/strong>/, "the page shows the markdown of the answer");

  // Continued, over a server that was killed.
  await server.restart();
  model.script([{ call: "edit", input: { filePath: `${one.project}/greeting.txt`, oldString: "hello", newString: "goodbye" } }], [{ text: "Changed." }]);
  await one.prompt(id, "Make it a farewell.");
  await synced(one, id, url);

  // Continued by an opencode that was killed, and shared again: the share there is, and nothing is lost.
  await one.stop();
  await one.start();
  assert.equal((await one.ask("POST", `/session/${id}/share`)).share.url, url);
  model.script([{ call: "bash", input: { command: "cat greeting.txt", description: "Show it" } }], [{ text: "There it is." }]);
  await one.prompt(id, "Show it.");
  await synced(one, id, url);

  // Imported on a second machine, which has neither the config nor a model.
  const two = await Machine.with(t, "two", { share: "http://127.0.0.1:9", model });
  assert.match(await two.run(["import", url]), new RegExp(`Imported session: ${id}`));
  assert.deepEqual(anywhere(await two.export(id)), anywhere(await one.export(id)));

  // Reverted, over another killed server: hidden, although no sync names what that is. Taken back, it is all there again.
  await server.restart();
  const whole = await one.export(id);
  const last = whole.messages.findLast((m) => m.info.role === "user");
  const removed = whole.messages.slice(whole.messages.indexOf(last));
  await one.ask("POST", `/session/${id}/revert`, { messageID: last.info.id });
  await until("what is reverted is hidden", async () => {
    const { info, messages } = await one.state(id);
    assert.equal(info.revert.messageID, last.info.id);
    assert.deepEqual(await held(url), { info, messages: messages.filter((m) => m.info.id < last.info.id) });
    return true;
  });
  await one.ask("POST", `/session/${id}/unrevert`);
  await synced(one, id, url);
  assert.deepEqual((await held(url)).messages, whole.messages);

  // Reverted and continued, which removes it.
  await one.ask("POST", `/session/${id}/revert`, { messageID: last.info.id });
  await until("it is hidden again", async () => (await held(url)).messages.every((m) => m.info.id < last.info.id));
  model.script([{ text: "As you wish." }]);
  await one.prompt(id, "Leave it.");
  await synced(one, id, url);
  assert.deepEqual((await held(url)).messages.filter((m) => removed.some((r) => r.info.id === m.info.id)), [], "what was removed is there");
  model.done();

  // Unshared: the link is dead, and the session is still the owner's.
  const before = await one.state(id);
  await one.ask("DELETE", `/session/${id}/share`);
  const dead = await fetch(url);
  assert.ok(dead.status >= 400, "the page of what is unshared");
  assert.match(await dead.text(), /revoked/i);
  assert.ok((await fetch(`${server.origin}/api${new URL(url).pathname}/data`)).status >= 400);
  const { messages } = await one.export(id);
  const ref = await server.ownerOf(id);
  const commands = await Commands.with(t);
  const exported = JSON.parse(await commands.run(["session", "export", ref]));
  assert.deepEqual(exported, before, "the owner's export is what opencode held when it was unshared");
  assert.deepEqual(shared(exported), shared({ ...(await one.export(id)), messages }));

  // Shared again: another link, to what opencode has by now, without what was removed.
  const { share: { url: again } } = await one.ask("POST", `/session/${id}/share`);
  assert.notEqual(again, url);
  await synced(one, id, again);
  const ids = (await held(again)).messages.map((m) => m.info.id);
  assert.deepEqual(removed.filter((r) => ids.includes(r.info.id)), [], "what was removed is there again");
  const three = await Machine.with(t, "three", { share: "http://127.0.0.1:9", model });
  assert.match(await three.run(["import", again]), new RegExp(`Imported session: ${id}`));
  assert.deepEqual((await three.export(id)).messages.map((m) => m.info.id), ids);
});

test("with a create-only ref in its config's URL, opencode shares by itself where nobody else may", async (t) => {
  const server = await Server.start(t, ["--share-loopback=false", "--verbose"]);
  const model = await Model.start(t);
  const commands = await Commands.with(t);
  const ref = await commands.run(["share", await server.owner(), "--rights", "create", "--label", "laptop"]);
  const into = await commands.run(["link", ref, "--opencode"]); // what stands in the config
  const secret = ref.split("#")[1];

  const stranger = await Machine.with(t, "stranger", { share: server.origin, model });
  await stranger.start();
  const refused = await stranger.ask("POST", "/session", {});
  await assert.rejects(stranger.ask("POST", `/session/${refused.id}/share`), "without the ref");
  await stranger.stop();

  const one = await Machine.with(t, "one", { share: into, model, mode: "auto" });
  await one.start();
  const session = await one.ask("POST", "/session", {});
  model.script([{ text: "Shared by **itself**." }]);
  await one.prompt(session.id, "Is this shared?");
  const url = await until("opencode has shared the session", async () => (await one.ask("GET", `/session/${session.id}`)).share?.url);
  assert.match(url, new RegExp(`^${server.origin}/share/[A-Za-z0-9_-]+$`), "what is handed on does not have the ref");
  await synced(one, session.id, url);
  assert.match(await (await fetch(url)).text(), /<strong>itself<\/strong>/);

  // The ref creates and does nothing else, and stands in no log.
  await one.ask("DELETE", `/session/${session.id}/share`);
  assert.ok((await fetch(url)).status >= 400);
  assert.ok((await fetch(`${into}/api/sessions`)).status >= 400, "it does not list");
  assert.ok(!server.log.includes(secret), "the ref's secret stands in the server's log");
  model.done();
});
