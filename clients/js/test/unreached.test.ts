// What answers in a server's place, and what is said of it.

import assert from "node:assert/strict";
import { once } from "node:events";
import * as fs from "node:fs/promises";
import * as http from "node:http";
import * as net from "node:net";
import * as path from "node:path";
import { test, type TestContext } from "node:test";
import { WebSocket } from "ws";
import { open, Ref } from "../src/index.js";
import { certificate, key } from "./certificate.js";
import { folder, freePort, TestServer } from "./rig.js";

/** A WebSocket that tells as little as that of newer Nodes does. */
class Mute extends WebSocket {
  override emit(event: string | symbol, ...args: unknown[]): boolean {
    return super.emit(event, ...(event === "error" ? [new Error("")] : args));
  }
}

async function listening(t: TestContext, server: net.Server): Promise<string> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return `127.0.0.1:${(server.address() as net.AddressInfo).port}`;
}

const answering = (t: TestContext, code: number, headers: http.OutgoingHttpHeaders = {}, body = ""): Promise<string> =>
  listening(t, http.createServer((_, res) => res.writeHead(code, { connection: "close", ...headers }).end(body)));

/** Speaks what nobody knows, before it is asked or after, and hangs up. */
const babbling = (t: TestContext, first: boolean, said = "\x15\x03\x01\x00\x02\x02\x16"): Promise<string> =>
  listening(t, net.createServer((socket) => {
    socket.on("error", () => {});
    if (first) socket.end(said);
    else socket.once("data", () => socket.end(said));
  }));

async function overTLS(t: TestContext): Promise<TestServer> {
  const dir = await folder(t, "tls"), files = [path.join(dir, "cert.pem"), path.join(dir, "key.pem")] as const;
  await fs.writeFile(files[0], certificate);
  await fs.writeFile(files[1], key);
  return TestServer.start(t, ["--tls-cert", files[0], "--tls-key", files[1]]);
}

test("what answers in a server's place is named, with what to do about it", { timeout: 60_000 }, async (t) => {
  const server = await overTLS(t), secure = `127.0.0.1:${server.port}`;
  const cases: [string, string, string, RegExp][] = [
    ["an untrusted certificate", "moorings", secure, /is not trusted \(self-signed certificate.*\): .*NODE_EXTRA_CA_CERTS/],
    ["TLS to a plain server", "moorings", await answering(t, 404), /speaks no TLS: a ref to it begins with mooring:\/\//],
    ["plain to a TLS server", "mooring", secure, /speaks TLS: a ref to it begins with moorings:\/\//],
    ["another web server", "mooring", await answering(t, 404), /is no Mooring server.*\(HTTP status 404\)/],
    ["another web server that is well", "mooring", await answering(t, 200), /is no Mooring server.*\(HTTP status 200\)/],
    ["a proxy without its server", "mooring", await answering(t, 502), /is away or takes nobody now \(HTTP status 502\)/],
    ["a redirection", "mooring", await answering(t, 302, { location: "https://u:p4ss@other.example/x" }), /is elsewhere: the server redirects to https:\/\/other\.example\/x, which is not followed/],
    ["no HTTP", "mooring", await babbling(t, false), /speaks no HTTP.*moorings:\/\//],
    ["speaks first", "mooring", await babbling(t, true, "SSH-2.0-x\r\n"), /speaks no HTTP/],
    ["hangs up", "mooring", await babbling(t, false, ""), /hangs up without an answer.*moorings:\/\//],
    ["nobody", "mooring", `127.0.0.1:${await freePort()}`, /no server answers at .* \(ECONNREFUSED\): is it running\?/],
  ];
  const own = (globalThis as { WebSocket?: unknown }).WebSocket; // newer Nodes have one
  for (const [how, socket] of [["ws", WebSocket], ["a WebSocket that tells nothing", Mute], ...(own ? [["Node's own", own] as const] : [])] as const) {
    const client = await open({ home: await folder(t, "home"), patience: 0, WebSocket: socket });
    for (const [name, scheme, at, words] of cases) {
      const space = await client.space(Ref.parse(server.ref.text.replace(server.ref.address, `${scheme}://${at}`)));
      await assert.rejects(space.info(), (err: Error & { codeName?: string }) => {
        assert.equal(err.codeName, "unavailable", `${name}, ${how}: ${err.message}`);
        assert.match(err.message, words, `${name}, ${how}`);
        assert.ok(err.message.includes(`${scheme}://${at}`) && !err.message.includes("p4ss"), err.message);
        assert.equal(/is it running/.test(err.message), name === "nobody", err.message);
        return true;
      });
    }
    await client.close();
  }
});
