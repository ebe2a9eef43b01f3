// Databases on the Postgres that MOORING_TEST_DATABASE_URL names, where it names one.

import { randomBytes } from "node:crypto";
import { output } from "./mooring.js";

/** Makes an empty database, which ends with the test, and gives its URL; undefined where SQLite is to be used. */
export async function database(t) {
  const at = process.env.MOORING_TEST_DATABASE_URL;
  if (!at) return undefined;
  const url = new URL(at);
  const say = (sql) => output("psql", ["--no-psqlrc", "--quiet", "--command", sql], { env: { ...process.env, ...account(url) } });
  const name = `mooring_e2e_${randomBytes(6).toString("hex")}`;
  await say(`CREATE DATABASE ${name} TEMPLATE template0`);
  t.after(() => say(`DROP DATABASE ${name} WITH (FORCE)`));
  const made = new URL(url);
  made.pathname = `/${name}`;
  return made.href;
}

/** A URL as psql's environment has it: in arguments its password could be read by others. */
function account({ hostname, port, username, password, pathname }) {
  return { PGHOST: hostname, PGPORT: port || "5432", PGUSER: decodeURIComponent(username), PGPASSWORD: decodeURIComponent(password), PGDATABASE: pathname.slice(1) };
}
