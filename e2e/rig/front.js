// An HTTP proxy that serves a server below a path, and takes that path off.

import { once } from "node:events";
import * as http from "node:http";
import { PassThrough, Transform } from "node:stream";

/** An answer that gets lost: whoever asked waits for it in vain. */
export const lost = () => new Transform({ transform() {} });

/** Starts one for a server, which is started again to know its address there; gives that. */
export async function behind(t, server, options) {
  const at = `localhost:${await front(t, server, "below", options)}/below`;
  await server.restart(["--advertise", `mooring://${at}`]);
  return `http://${at}`;
}

/** Starts one for a server that ends with the test; gives its port. What is not below /prefix is not found. Answers go through what through(req) gives, a stream. */
export async function front(t, target, prefix, { sockets = "passed", through = () => new PassThrough() } = {}) {
  const below = ({ url }) => (url.startsWith(`/${prefix}/`) ? url.slice(prefix.length + 1) : undefined);
  const ask = (req) => http.request({ host: "127.0.0.1", port: target.port, method: req.method, path: below(req), headers: req.headers, agent: false });
  const server = http.createServer((req, res) => {
    if (below(req) === undefined) {
      res.writeHead(404).end();
      return;
    }
    const far = ask(req);
    far.on("response", (answer) => {
      res.writeHead(answer.statusCode, answer.rawHeaders);
      answer.on("error", () => res.destroy());
      answer.pipe(through(req)).pipe(res);
    });
    far.on("error", () => res.destroy());
    res.on("close", () => far.destroy());
    req.pipe(far);
  });
  // WebSockets.
  server.on("upgrade", (req, near, head) => {
    near.on("error", () => {});
    t.after(() => near.destroy());
    if (sockets === "refused") return near.end("HTTP/1.1 501 Not Implemented\r\nConnection: close\r\n\r\n");
    if (sockets === "hung") return;
    const far = ask(req);
    near.on("error", () => far.destroy());
    far.on("error", () => near.destroy());
    far.on("response", () => near.destroy()); // refused
    far.on("upgrade", (answer, socket, first) => {
      const lines = answer.rawHeaders.flatMap((name, i, all) => (i % 2 === 0 ? [`${name}: ${all[i + 1]}`] : []));
      near.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join("\r\n")}\r\n\r\n`);
      near.write(first);
      socket.write(head);
      socket.on("error", () => near.destroy());
      near.on("error", () => socket.destroy());
      near.pipe(socket);
      socket.pipe(near);
    });
    far.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return server.address().port;
}
