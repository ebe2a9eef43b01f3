// A child of the benchmark on Node: serves the echo with the npm package capnweb, or calls it. It speaks as child.go does:
// a request in JSON a line, a reply a line.

import http from 'node:http';
import readline from 'node:readline';
import WebSocket, { WebSocketServer } from 'ws';
import { RpcTarget, newWebSocketRpcSession } from 'capnweb';

globalThis.WebSocket ??= WebSocket; // Node 20 has none

const message = '0123456789'.repeat(30);

class Echo extends RpcTarget {
  echo(text) { return text; }
}

let main, socket;

function serve() {
  const server = http.createServer((_, response) => { response.writeHead(404); response.end(); });
  new WebSocketServer({ server }).on('connection', (socket) => { newWebSocketRpcSession(socket, new Echo()); });
  return new Promise((resolve, reject) => {
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => resolve(`127.0.0.1:${server.address().port}`));
  });
}

async function connect(address) {
  socket = new WebSocket('ws://' + address + '/', { perMessageDeflate: false });
  await new Promise((resolve, reject) => { socket.once('open', resolve); socket.once('error', reject); });
  main = newWebSocketRpcSession(socket);
  await echo();
}

async function echo() {
  if (await main.echo(message) !== message) throw new Error('the answer is not what was sent');
}

const nanoseconds = (ms) => Math.round(ms * 1e6);

function usage() {
  const { user, system } = process.cpuUsage();
  return { CPU: (user + system) * 1000, Mallocs: 0 };
}

async function measured(flight, span) {
  const took = [], before = usage(), start = performance.now(), end = start + span;
  await Promise.all(Array.from({ length: flight }, async () => {
    for (let last = start; ;) {
      await echo();
      const now = performance.now();
      took.push(now - last);
      last = now;
      if (now >= end) return;
    }
  }));
  const elapsed = performance.now() - start, used = usage();
  took.sort((a, b) => a - b);
  const quantile = (share) => nanoseconds(took[Math.min(took.length - 1, Math.floor(share * took.length))]);
  return {
    Calls: took.length, Elapsed: nanoseconds(elapsed), P50: quantile(0.5), P99: quantile(0.99),
    Used: { CPU: used.CPU - before.CPU, Mallocs: 0 },
  };
}

async function answer(request) {
  if (request.Serve) return { Address: await serve() };
  if (request.Connect) return void await connect(request.Address);
  if (request.Disconnect) return void socket.close();
  if (request.Measure > 0) return { Measured: await measured(request.Flight, request.Measure / 1e6) };
  if (request.Usage) return { Used: usage() };
  throw new Error('a child on Node cannot do that');
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  let reply;
  try { reply = await answer(JSON.parse(line)) ?? {}; } catch (error) { reply = { Error: String(error) }; }
  console.log(JSON.stringify(reply));
}
process.exit(0);
