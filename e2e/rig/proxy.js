// A TCP proxy whose links break when told to.

import { once } from "node:events";
import * as net from "node:net";

export class Proxy {
  /** Links are refused while this is set. */
  refusing = false;
  /** The next link breaks after so many bytes of what the server sends over it; undefined: it does not. */
  cutAfter;
  #server;
  #links = new Set();

  /** Starts one before a server that ends with the test. It finds the server over its restarts. */
  static async start(t, target) {
    const p = new Proxy();
    p.#server = net.createServer((near) => p.#admit(near, target));
    p.#server.listen(0, "127.0.0.1");
    await once(p.#server, "listening");
    t.after(() => {
      p.#server.close();
      p.cut();
    });
    return p;
  }

  get origin() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  /** Breaks every link there is. */
  cut() {
    for (const link of this.#links) for (const socket of link) socket.resetAndDestroy();
  }

  #admit(near, target) {
    near.on("error", () => {});
    if (this.refusing) {
      near.resetAndDestroy();
      return;
    }
    const far = net.connect(target.port, "127.0.0.1");
    const link = [near, far];
    this.#links.add(link);
    far.on("error", () => near.destroy());
    for (const socket of link) {
      socket.setNoDelay();
      socket.on("close", () => {
        this.#links.delete(link);
        near.destroy();
        far.destroy();
      });
    }
    near.pipe(far);
    if (this.cutAfter === undefined) {
      far.pipe(near);
      return;
    }
    let left = this.cutAfter;
    this.cutAfter = undefined;
    far.on("data", (bytes) => {
      const part = bytes.subarray(0, left);
      left -= part.length;
      near.write(part, () => left === 0 && near.resetAndDestroy());
    });
  }
}
