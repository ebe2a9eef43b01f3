// Which ops commit refuses, with what words, and which need a feature of the server: what the Go client does with the same ones.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { MooringError } from "../src/fault.js";
import { type Arg, checkIntent, defaultLimits } from "../src/intent.js";
import { checkOp, featuresOf } from "../src/methods.js";
import { repo } from "./paths.js";

interface Row { method: string; args: Arg[]; error?: string; needs?: string[] }

test("ops are refused as the Go client refuses them, and need what they need there", () => {
  const table = JSON.parse(readFileSync(repo("testdata/ops.json"), "utf8")) as Row[];
  assert.ok(table.length > 300);
  for (const { method, args, error = "", needs = [] } of table) {
    const op = { id: "01ARZ3NDEKTSV4RRFFQ69G5FAV", method, args };
    let got = "";
    try {
      checkIntent(op, defaultLimits);
      checkOp(op);
    } catch (err) {
      assert.ok(err instanceof MooringError);
      got = err.message;
    }
    assert.equal(got, error, JSON.stringify(op));
    assert.deepEqual(featuresOf([op]), needs, JSON.stringify(op));
  }
});

test("what is nested deeper than a server takes is refused", () => {
  const lists = (n: number): Arg[] => [{ name: "key", json: '"plan"' }, { name: "payload", json: "[".repeat(n) + "]".repeat(n) }];
  checkIntent({ id: "01ARZ3NDEKTSV4RRFFQ69G5FAV", method: "put", args: lists(10_000) }, defaultLimits);
  assert.throws(() => checkIntent({ id: "01ARZ3NDEKTSV4RRFFQ69G5FAV", method: "put", args: lists(10_001) }, defaultLimits), { codeName: "malformed" });
});
