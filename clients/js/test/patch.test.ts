// Patches and sums, against what the Go package makes of the same ones.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { MooringError } from "../src/fault.js";
import { add, merge } from "../src/patch.js";
import { repo } from "./paths.js";

interface Case { value?: string; result?: string; error?: string }
interface Vectors { merge: (Case & { patch: string })[]; add: (Case & { member: string; by: number })[] }

const vectors = JSON.parse(readFileSync(repo("internal/jsonpatch/testdata/patch.json"), "utf8")) as Vectors;

function check(c: Case, got: () => string): void {
  if (c.error === undefined) assert.equal(got(), c.result, JSON.stringify(c));
  else assert.throws(got, (err) => err instanceof MooringError && err.message === c.error, JSON.stringify(c));
}

test("a patch gives the bytes and the errors that the Go package gives", () => {
  assert.ok(vectors.merge.length > 180);
  for (const c of vectors.merge) check(c, () => merge(c.value, c.patch));
});

test("so does a sum", () => {
  assert.ok(vectors.add.length > 90);
  for (const c of vectors.add) check(c, () => add(c.value, c.member, c.by));
  assert.equal(add("{}", "n", -0), '{"n":0}');
  for (const by of [1.5, NaN, Infinity]) assert.throws(() => add("{}", "n", by), { codeName: "bad_payload" });
});

test("half a surrogate pair that is no escape has no UTF-8 form", () => {
  for (const text of ['{"\ud800":1}', '{"\ud83d\\ude00":1}', '{"a":"\udc00"}']) {
    assert.throws(() => merge(text, "{}"), { codeName: "bad_payload" });
    assert.throws(() => merge("{}", text), { codeName: "bad_payload" });
  }
  assert.throws(() => add("{}", "\ud800", 1), { codeName: "bad_payload", reason: "the member's name is not Unicode text" });
});

test("depth is bounded as on the server, and costs no stack", () => {
  const deep = (n: number, inner: string) => '{"a":'.repeat(n - 1) + inner + "}".repeat(n - 1); // n objects, one in the other
  const most = 10_000;
  assert.equal(merge(deep(most, '{"b":1}'), deep(most, '{"c":2}')), deep(most, '{"b":1,"c":2}'));
  assert.equal(merge(deep(most, '{"b":1}'), deep(most, '{"b":null}')), deep(most, "{}"));
  assert.equal(merge(undefined, deep(most, '{"b":null,"c":1}')), deep(most, '{"c":1}'));
  assert.throws(() => merge(deep(most + 1, "{}"), "{}"), { codeName: "bad_payload", reason: "the value is not JSON text, or nested too deep" });
  assert.throws(() => merge("{}", deep(most + 1, "{}")), { codeName: "bad_payload", reason: "the patch is not JSON text, or nested too deep" });
  for (const flat of [`{"a":"${"[".repeat(most + 1)}"}`, `{"a":[${'{"b":"c"},'.repeat(most)}[]]}`]) assert.equal(merge("{}", flat), flat);
});
