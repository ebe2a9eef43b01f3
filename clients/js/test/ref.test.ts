// Refs as text, against what the Go package makes of the same texts, and that nothing shows a secret by accident.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { inspect } from "node:util";
import { MooringError } from "../src/fault.js";
import { deriveID, isOffline, isSealed, Ref, streamSecret } from "../src/ref.js";
import { byteLength, fromBase64url, sha256, toBase64url } from "../src/text.js";
import { batchOf, isULID, newBatchID, newULID, opID } from "../src/ulid.js";
import { repo } from "./paths.js";

interface Shared {
  text: string; error?: string; tls?: boolean; hosts?: string[]; prefix?: string; id: string; target: string; address: string;
  again: string; public: string; hash: string; clear?: string; offline?: boolean; sealed?: boolean; fits?: boolean; derived: string;
}

const shared = JSON.parse(readFileSync(repo("testdata/refs.json"), "utf8")) as Shared[];

test("refs read as the Go package reads them", () => {
  assert.ok(shared.length > 70);
  for (const want of shared) {
    if (want.error !== undefined) {
      assert.throws(() => Ref.parse(want.text), (err) => err instanceof MooringError && err.message === want.error, want.text);
      continue;
    }
    const r = Ref.parse(want.text);
    const got = {
      tls: r.tls, hosts: r.hosts, prefix: r.prefix, id: r.id, target: r.target, address: r.address, again: r.text, public: String(r),
      hash: r.hashText, clear: r.clearTextHost, offline: isOffline(r.id), sealed: isSealed(r.id),
      derived: deriveID(r.target, fromBase64url(r.secretText)!),
    };
    const { text: _, fits = false, ...rest } = want;
    assert.deepEqual(got, { tls: false, prefix: "", clear: "", offline: false, sealed: false, ...rest }, want.text);
    assert.equal(r.fits, fits || !isOffline(r.id), want.text); // a server's id says nothing of the secret
  }
});

test("an outbox shows each session's server something else, as the Go client does", () => {
  const secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
  assert.equal(streamSecret(secret, "ses_01JABCDEFGHJKMNPQRSTVWXYZ0"), "89n1WR80OoOkv0oM--78Dr5gGFVJfjnqQ-M8yxWRT5A");
  assert.notEqual(streamSecret(secret, "ses_01JABCDEFGHJKMNPQRSTVWXYZ1"), streamSecret(secret, "ses_01JABCDEFGHJKMNPQRSTVWXYZ0"));
});

test("a new ref fits its own secret and reads back", () => {
  const at = Ref.parse(shared[0]!.again);
  const made = at.for(`ses_${newULID()}`);
  assert.ok(made.fits && isOffline(made.id));
  assert.ok(Ref.parse(made.text).equals(made));
  assert.notEqual(at.for(made.target).text, made.text);
});

test("no way of printing a ref shows its secret", () => {
  const r = Ref.parse(shared[0]!.again).for(`ses_${newULID()}`);
  const secret = r.secretText;
  const forms = [String(r), `${r as unknown as string}`, JSON.stringify(r), JSON.stringify({ r }), inspect(r), inspect({ a: [r] }, { depth: 9, showHidden: true }),
    Object.entries(r).join(), new Error("x", { cause: r }).stack, inspect(new Error("x", { cause: r }))];
  for (const f of forms) assert.ok(!f!.includes(secret), f);
  assert.ok(inspect(r).includes(r.id));
});

test("errors about a ref repeat nothing of it", () => {
  for (const { text, error } of shared) {
    if (error === undefined) continue;
    const secret = text.split("#")[1] ?? text;
    if (secret.length > 8) assert.ok(!error.includes(secret));
  }
});

test("secrets go in clear to this machine alone", () => {
  const at = (hosts: string) => Ref.parse(`mooring://${hosts}/${shared[0]!.id}#${"A".repeat(43)}`);
  at("localhost,127.0.0.1,[::1]").checkPlaintext(false);
  assert.throws(() => at("localhost,example.org").checkPlaintext(false), { codeName: "plaintext" });
  at("example.org").checkPlaintext(true);
});

test("SHA-256 and base64url are those of everyone", () => {
  for (let n = 0; n < 200; n++) {
    const b = randomBytes(n);
    assert.deepEqual(Buffer.from(sha256(b)), createHash("sha256").update(b).digest());
    assert.equal(toBase64url(b), b.toString("base64url"));
    assert.deepEqual(Buffer.from(fromBase64url(b.toString("base64url"))!), b);
  }
  for (const bad of ["A", "AB", "AAB", "A=", "A A", "ä"]) assert.equal(fromBase64url(bad), undefined, bad);
  for (const s of ["", "abc", "äöü", "€", "𝄞", "\ud800", "a\ud800b", "\udc00"]) assert.equal(byteLength(s), Buffer.byteLength(s), s);
});

test("ids ascend, and an op's id tells its batch", () => {
  let last = "", lastBatch = "";
  for (let i = 0; i < 1000; i++) {
    const id = newULID(1700000000000), batch = newBatchID(1700000000000);
    assert.ok(isULID(id) && id > last && isULID(batch) && batch > lastBatch);
    last = id;
    lastBatch = batch;
    assert.equal(batchOf(opID(batch, i)), batch);
  }
  assert.equal(opID(lastBatch, 0) < opID(lastBatch, 1), true);
  for (const bad of ["", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01M7XHZXQMGNPZVGCRHFRZXZN", "01m7xhzxqmgnpzvgcrhfrzxznv", "01M7XHZXQMGNPZVGCRHFRZXZNU".replace("N", "I")]) assert.ok(!isULID(bad), bad);
  assert.equal(isULID(opID("01M7XHZXQMGNPZVGCRHFRZXZNV", 0)), true);
});
