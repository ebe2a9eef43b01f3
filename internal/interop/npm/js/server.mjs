// Serves the target with a version of capnweb: node server.mjs VERSION. Prints the address it listens on and ends with
// its input. At /watched a WebSocket's target can count its connection's tables and abort it.

import http from 'node:http';
import { WebSocketServer } from 'ws';
import { load, SocketTransport } from './load.mjs';
import { targetFor } from './target.mjs';

const capnweb = await load(process.argv[2]);
const Target = targetFor(capnweb);
const options = {
  onSendError(error) { if (/secret/.test(error.message)) return Object.assign(new Error('internal error'), { stack: undefined }); },
};

const server = http.createServer((request, response) => {
  capnweb.nodeHttpBatchRpcResponse(request, response, new Target(), {
    ...options, headers: { 'Access-Control-Allow-Origin': '*' },
  }).catch((error) => { response.writeHead(500); response.end(String(error)); });
});
new WebSocketServer({ server, perMessageDeflate: false }).on('connection', (socket, request) => {
  const target = new Target();
  if (request.url !== '/watched') return void capnweb.newWebSocketRpcSession(socket, target, options);
  const session = new capnweb.RpcSession(new SocketTransport(socket), target, options);
  const remote = session.getRemoteMain();
  target.connected({
    getStats: () => session.getStats(),
    abort(message) { socket.send(JSON.stringify(['abort', ['error', 'Error', message]])); socket.close(3000, message); },
  });
  void remote;
});
server.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${server.address().port}`));
process.on('unhandledRejection', (error) => console.error('unhandled rejection:', error));
process.stdin.on('end', () => process.exit(0)).resume();
