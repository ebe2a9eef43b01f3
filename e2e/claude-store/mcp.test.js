// The real Claude Code with Mooring as a server of the Model Context Protocol, added by the lines of docs/mcp.md as they stand but for ids and addresses.

import assert from "node:assert/strict";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Commands, folder, mooring, output, repo, Server } from "../rig/mooring.js";

const claude = fileURLToPath(new URL(`node_modules/@anthropic-ai/claude-agent-sdk-${process.platform}-${process.arch}/claude`, import.meta.url));

test("the lines of docs/mcp.md add Mooring to Claude Code, which connects", { timeout: 240_000 }, async (t) => {
  const server = await Server.start(t, ["--mcp"]), commands = await Commands.with(t);
  const id = (await commands.run(["session", "create", "--owner", await server.owner()])).trim();
  const [, lines] = /^```sh\n([^]*?)^```$/m.exec(await fs.readFile(repo("docs/mcp.md"), "utf8"));
  const [share, ...adds] = lines.trim().replace(/ses_01J…/g, id).replaceAll("https://mooring.example.org", server.origin).split("\n");
  assert.equal(adds.length, 2);
  const programs = await folder(t, "programs"), cwd = await folder(t, "project");
  for (const [name, file] of [["mooring", mooring()], ["claude", claude]]) await fs.symlink(file, path.join(programs, name));
  for (const add of adds) {
    const home = await folder(t, "claude");
    const env = {
      PATH: `${programs}:${process.env.PATH}`, HOME: home, TMPDIR: home, CLAUDE_CONFIG_DIR: path.join(home, ".claude"), MOORING_HOME: commands.home, ANTHROPIC_API_KEY: "sk-ant-scripted",
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1",
    };
    const run = (line) => output("sh", ["-euc", line], { cwd, env });
    if (add === adds[0]) await run(share);
    await run(add);
    assert.match(await run("claude mcp list"), /^mooring: .* - \S+ Connected$/m, add);
  }
});
