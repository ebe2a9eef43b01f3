// Processes of this machine.

import { execFileSync } from "node:child_process";
import * as fs from "node:fs";

/** The processes that one has started, and these, and so on. */
export function descendants(pid) {
  const rows = execFileSync("ps", ["-A", "-o", "pid=,ppid="], { encoding: "utf8" }).trim().split("\n").map((row) => row.trim().split(/\s+/).map(Number));
  const all = [];
  for (let at = [pid]; at.length > 0; all.push(...at)) at = rows.filter(([, parent]) => at.includes(parent)).map(([child]) => child);
  return all;
}

/** Kills a process at once, which may have ended. */
export function kill(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch (err) {
    if (err.code !== "ESRCH") throw err;
  }
}

/** The processes whose environment has a text; none where there is no /proc. */
export function withEnvironment(text) {
  const of = (name) => {
    try {
      return fs.readFileSync(name, "latin1");
    } catch {
      return ""; // it has ended, or is another user's
    }
  };
  return !fs.existsSync("/proc/self/environ") ? [] : fs.readdirSync("/proc").filter((name) => /^\d+$/.test(name) && of(`/proc/${name}/environ`).includes(text)).map(Number);
}
