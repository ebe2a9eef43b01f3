// Servers that refuse the link, fall silent or are none: what is said, and that nobody is held by them.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { test, type TestContext } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { type Client, type CodeName, MooringError, open, type OpenOptions, Ref } from "../src/index.js";
import { folder, TestServer } from "./rig.js";

const refused = (codeName: CodeName) => (err: unknown): boolean => err instanceof MooringError && err.codeName === codeName;

async function client(t: TestContext, options: Partial<OpenOptions> = {}): Promise<Client> {
  const c = await open({ home: await folder(t, "home"), reconnect: { initial: 10, max: 100 }, outbox: { backoff: { initial: 10, max: 100 } }, ...options });
  t.after(() => c.close());
  return c;
}

test("a server that refuses the link says what is wrong, and waiting is not silent", async (t) => {
  const server = await TestServer.start(t), told: string[] = [];
  class Foreign extends WebSocket {
    constructor(url: string) {
      super(url, { origin: "http://elsewhere.example" });
    }
  }
  const c = await client(t, { WebSocket: Foreign, patience: 200, log: (m) => told.push(m) });
  const space = await c.space(server.ref);
  await assert.rejects(space.info(), { codeName: "unavailable", message: /HTTP status 403.*serve --allow-origin/ });
  const ticket = await space.create().batch.commit();
  const gone = new AbortController(), waiting = ticket.wait({ signal: gone.signal });
  while (c.status().streams[0]!.attempts < 3) await new Promise((r) => setTimeout(r, 5));
  gone.abort();
  await assert.rejects(waiting, refused("canceled"));
  assert.equal(told.filter((m) => m.includes("--allow-origin")).length, 1, told.join("\n"));
  assert.ok(!told.join("").includes(server.ref.secretText));

  const other = createServer((_, res) => res.writeHead(404).end()).listen(0, "127.0.0.1");
  t.after(() => other.close());
  await once(other, "listening");
  const wrong = Ref.parse(server.ref.text.replace(/:\d+/, `:${(other.address() as AddressInfo).port}`));
  const d = await client(t, { patience: 200 });
  await assert.rejects((await d.space(wrong)).info(), { codeName: "unavailable", message: /is no Mooring server.*HTTP status 404/ });
});

test("a server that has fallen silent does not keep a closed client's process alive", { timeout: 10_000 }, async (t) => {
  const silent = createServer().listen(0, "127.0.0.1");
  t.after(() => silent.close());
  await once(silent, "listening");
  const server = await TestServer.start(t), c = await client(t);
  const deaf = Ref.parse(server.ref.text.replace(/:\d+/, `:${(silent.address() as AddressInfo).port}`));
  const asked = (await c.space(deaf)).info();
  asked.catch(() => {});
  const [req, socket] = (await once(silent, "upgrade")) as [IncomingMessage, Socket];
  const accept = createHash("sha1").update(`${req.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
  await once(socket, "data"); // the client's first words
  socket.resume().on("error", () => {});
  const gone = once(socket, "end");
  await c.close();
  await assert.rejects(asked, refused("canceled"));
  await gone; // ws alone would wait for half a minute
});

test("a call that is not answered can be given up", async (t) => {
  const silent = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  t.after(() => {
    for (const s of silent.clients) s.terminate();
    silent.close();
  });
  await once(silent, "listening");
  const server = await TestServer.start(t), c = await client(t);
  const deaf = Ref.parse(server.ref.text.replace(/:\d+/, `:${(silent.address() as AddressInfo).port}`));
  const gone = new AbortController(), asked = (await c.space(deaf)).info({ signal: gone.signal });
  await once(silent, "connection");
  gone.abort();
  await assert.rejects(asked, refused("canceled"));
});
