// The programs of the package's README and of docs/javascript.md, as they stand there.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test, type TestContext } from "node:test";
import { promisify } from "node:util";
import { open } from "../src/index.js";
import { repo } from "./paths.js";
import { folder, TestServer } from "./rig.js";

const run = promisify(execFile);

/** The code blocks of a file in a language. */
const blocks = (file: string, language: string): string[] =>
  [...readFileSync(repo(file), "utf8").matchAll(/^```(\w+)\n([^]*?)^```$/gm)].filter((m) => m[1] === language).map((m) => m[2]!);

/** Compiles a program strictly, as a user of the package would, and runs it in a folder. */
async function program(t: TestContext, text: string, cwd: string): Promise<string> {
  const here = repo("clients/js"), dir = await fs.mkdtemp(path.join(here, "dist/readme-"));
  t.after(() => fs.rm(dir, { recursive: true, force: true }));
  await fs.writeFile(path.join(dir, "main.mts"), text);
  await run(path.join(here, "node_modules/.bin/tsc"), [
    "--ignoreConfig", "--strict", "--target", "es2022", "--lib", "es2023,esnext.disposable,dom", "--module", "nodenext", "--types", "node", path.join(dir, "main.mts"),
  ], { cwd: here }).catch((err: { stdout: string }) => assert.fail(err.stdout));
  return (await run(process.execPath, [path.join(dir, "main.mjs")], { cwd, timeout: 20_000 })).stdout;
}

test("the client's program in clients/js/README.md", async (t) => {
  const server = await TestServer.start(t), cwd = await folder(t, "agent");
  const text = blocks("clients/js/README.md", "ts").find((b) => b.includes("mooring-client"))!;
  assert.ok(text.trim().split("\n").length <= 30);
  await fs.mkdir(path.join(cwd, "srv"));
  await fs.writeFile(path.join(cwd, "srv/owner.ref"), `${server.ref.text}\n`);
  const said = await program(t, text, cwd);
  assert.deepEqual(said.trim().split("\n").map((l) => l.split(" ")[1]), ["create", "begin", "put", "appendText", "appendText", "finalize", "share", "with"]);
});

test("what clients/js/README.md says of state of any kind", async (t) => {
  const server = await TestServer.start(t), cwd = await folder(t, "agent");
  await fs.mkdir(path.join(cwd, "srv"));
  await fs.writeFile(path.join(cwd, "srv/owner.ref"), `${server.ref.text}\n`);
  const all = blocks("clients/js/README.md", "js"), writes = all.find((b) => b.includes("batch.patch"))!, follows = all.find((b) => b.includes("fold(state"))!, claims = all.find((b) => b.includes("claimFirst"))!;
  const said = await program(t, `
    import { readFile } from "node:fs/promises";
    import { open } from "mooring-client";
    await using client = await open({ home: "agent-home" });
    const { session, batch: creation } = (await client.space(await readFile("srv/owner.ref", "utf8"))).create();
    await (await creation.commit()).wait();
    const batch = session.batch(), entry = { cursor: 1 };
    ${writes}
    ${follows.replace("session.snapshot();", "session.snapshot();\nconst ticket = await batch.commit();").replace(/\n}\n$/, '\nif (event.method === "add") break;\n}\n')}
    console.log((await ticket.wait()).outcomes.map((o) => o.status).join(" "));
    {
      const batch = session.batch();
      ${claims}
      console.log((await (await batch.commit()).wait()).outcomes.map((o) => o.status).join(" "));
    }
  `, cwd);
  assert.deepEqual(said.trim().split("\n"), [
    'todo/1 {"text":"write it down","state":"open","tries":0}', 'todo/1 {"text":"write it down","state":"done","tries":0,"by":{"name":"b"}}',
    'todo/1 {"text":"write it down","state":"done","tries":1,"by":{"name":"b"}}', "applied applied applied conflict", "applied applied applied",
  ]);
});

test("the program for capnweb alone in docs/javascript.md", async (t) => {
  const server = await TestServer.start(t);
  const client = await open({ home: await folder(t, "home") });
  t.after(() => client.close());
  const { session, batch } = (await client.space(server.ref)).create();
  batch.put("session", { title: "x" });
  (await (await batch.commit()).wait()).check();
  const text = blocks("docs/javascript.md", "js").find((b) => b.includes('"capnweb"'))!;
  assert.ok(text.trim().split("\n").length <= 6);
  const here = repo("clients/js"), dir = await fs.mkdtemp(path.join(here, "dist/readme-"));
  t.after(() => fs.rm(dir, { recursive: true, force: true }));
  const own = text.replace("127.0.0.1:7600", `127.0.0.1:${server.port}`).replace(/mooring:\/\/[^"]*/, session.ref.text);
  await fs.writeFile(path.join(dir, "main.mjs"), `import { WebSocket } from "ws"; globalThis.WebSocket ??= WebSocket;\n${own}\n`);
  // It ends when its link does: it is killed once it has said what it has to.
  const child = spawn(process.execPath, [path.join(dir, "main.mjs")], { stdio: ["ignore", "pipe", "inherit"], timeout: 20_000 });
  let said = "";
  for await (const text of child.stdout.setEncoding("utf8")) {
    said += text as string;
    if (/^2\n[^]*method: 'create'[^]*method: 'put'/.test(said)) child.kill();
  }
  assert.match(said, /^2\n[^]*method: 'create'[^]*method: 'put'/);
});
