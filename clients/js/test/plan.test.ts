// The example of agents that share a plan: the one in JavaScript and the one in Go, on one plan.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { repo } from "./paths.js";
import { folder, TestServer } from "./rig.js";

const run = promisify(execFile);

test("agents in JavaScript and Go work on one plan", async (t) => {
  const server = await TestServer.start(t), cwd = await folder(t, "plan");
  const plan = path.join(cwd, "plan");
  await run("go", ["build", "-trimpath", "-o", plan, "./examples/plan"], { cwd: repo("."), env: { ...process.env, CGO_ENABLED: "0" } });
  await fs.writeFile(path.join(cwd, "owner.ref"), `${server.ref.text}\n`, { mode: 0o600 });
  const steps = ["saw", "sand", "caulk", "paint", "varnish", "rig", "launch"];
  await run(plan, ["new", "owner.ref", "plan.ref", ...steps], { cwd, timeout: 60_000 });

  await fs.mkdir(path.join(cwd, "node_modules"));
  await fs.symlink(repo("clients/js"), path.join(cwd, "node_modules/mooring-client"), "dir");
  await fs.copyFile(repo("examples/plan/plan.mjs"), path.join(cwd, "plan.mjs"));
  const said = await Promise.all([
    run(process.execPath, ["plan.mjs", "plan.ref", "ann"], { cwd, timeout: 60_000 }),
    run(plan, ["work", "plan.ref", "bob"], { cwd, timeout: 60_000 }),
    run(process.execPath, ["plan.mjs", "plan.ref", "cyd"], { cwd, timeout: 60_000 }),
  ]);
  const done = said.flatMap(({ stdout }) => stdout.trim().split("\n").map((line) => line.slice(line.indexOf(": ") + 2)));
  assert.deepEqual(done.toSorted(), [...steps, ...said.map(() => "all 7 steps are done")].toSorted());
  await assert.rejects(run(process.execPath, ["plan.mjs", "plan.ref"], { cwd }), /usage: node plan.mjs/);
});
