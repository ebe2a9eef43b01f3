// Loads a version of capnweb, and what Node 20 lacks.

import WebSocket from 'ws';

globalThis.WebSocket ??= WebSocket;

// load gives the exports of a version, like "0.12.0", with its number as an array.
export async function load(version) {
  const capnweb = await import('capnweb-' + version);
  return { ...capnweb, version };
}

// atLeast says whether a version is another or a later one.
export function atLeast(version, other) {
  const a = version.split('.').map(Number), b = other.split('.').map(Number);
  for (let i = 0; i < 3; i++) if (a[i] !== b[i]) return a[i] > b[i];
  return true;
}

// SocketTransport is a transport over a WebSocket of ws that notes what it sends and receives.
export class SocketTransport {
  #socket; #opened; #queue = []; #waiter; #ended;
  log = [];
  closed; // how the peer closed: {code, reason}

  constructor(socket) {
    this.#socket = socket;
    this.#opened = socket.readyState === 1 ? Promise.resolve() : new Promise((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
    });
    this.#opened.catch(() => {});
    socket.on('message', (data, binary) => {
      if (binary) return this.#end(new Error('a binary message'));
      const message = data.toString();
      this.log.push('< ' + message);
      this.#queue.push(message);
      this.#wake();
    });
    socket.on('close', (code, reason) => {
      this.closed = { code, reason: reason.toString() };
      this.#end(new Error(`Peer closed WebSocket: ${code} ${reason}`));
    });
    socket.on('error', (error) => this.#end(error));
  }

  #wake() { const w = this.#waiter; this.#waiter = undefined; w?.(); }
  #end(error) { this.#ended ??= error; this.#wake(); }

  async send(message) {
    if (this.#socket.readyState === 0) await this.#opened;
    this.log.push('> ' + message);
    if (this.#socket.readyState === 1) this.#socket.send(message);
  }

  async receive() {
    while (this.#queue.length === 0) {
      if (this.#ended) throw this.#ended;
      await new Promise((resolve) => { this.#waiter = resolve; });
    }
    return this.#queue.shift();
  }

  abort(reason) {
    this.#end(reason instanceof Error ? reason : new Error(String(reason)));
    const text = String(reason?.message ?? reason).slice(0, 100);
    if (this.#socket.readyState === 1) this.#socket.close(3000, text);
  }

  close() { this.#socket.close(); }
  cut() { this.#socket.terminate(); }
}
