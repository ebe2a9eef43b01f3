// Where things are: the repository, the server's binary.

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import * as path from "node:path";
import { fileURLToPath } from "node:url";

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../../..");

/** A file of the repository. */
export const repo = (file: string): string => path.join(root, file);

let built = process.env["MOORING_BIN"] ?? "";

/** The server's binary: MOORING_BIN, or built from this repository. */
export function mooring(): string {
  if (built === "" || !existsSync(built)) {
    built = repo("clients/js/dist/mooring");
    execFileSync("go", ["build", "-trimpath", "-o", built, "./cmd/mooring"], { cwd: root, stdio: "inherit", env: { ...process.env, CGO_ENABLED: "0" } });
  }
  return built;
}
