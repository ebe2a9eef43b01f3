// A WebSocket under a Cap'n Web session: connecting with a time limit, and knowing when it was last heard.

import { fault, MooringError } from "./fault.js";
import { type Attempt, unopened, unreached } from "./unreached.js";

/** What is used of a WebSocket: that of browsers, of the package ws, of newer Nodes. */
export interface WebSocketLike {
  readonly readyState: number;
  binaryType: string;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  terminate?(): void; // the package ws alone
  addEventListener(type: string, listener: (event: any) => void): void;
}

/** Makes WebSockets. */
export type WebSocketConstructor = new (url: string) => WebSocketLike;

const closed = 3; // a readyState
const farewell = 500; // how long the other side has to say that it closes, too

/** One connection. */
export class Transport {
  /** When anything was last received. */
  heard = Date.now();
  /** Fulfilled when the connection has ended. */
  readonly ended: Promise<MooringError>;
  readonly #socket: WebSocketLike;
  readonly #queue: string[] = [];
  #waiting: { resolve: (m: string) => void; reject: (err: unknown) => void } | undefined;
  #error: MooringError | undefined;
  #ended!: (err: MooringError) => void;

  private constructor(socket: WebSocketLike) {
    this.#socket = socket;
    this.ended = new Promise((resolve) => { this.#ended = resolve; });
    socket.addEventListener("message", (event: { data: unknown }) => {
      this.heard = Date.now();
      if (typeof event.data !== "string") {
        this.close(fault("incompatible", "the server sent a binary message where there can be none"));
        return;
      }
      const w = this.#waiting;
      this.#waiting = undefined;
      if (w) w.resolve(event.data);
      else this.#queue.push(event.data);
    });
    socket.addEventListener("close", () => this.#end(fault("disconnected", "the link broke")));
    socket.addEventListener("error", () => this.#end(fault("disconnected", "the link broke")));
  }

  /** Connects; unavailable if that does not succeed in time. */
  static connect(url: string, WebSocket: WebSocketConstructor, timeout: number, signal: AbortSignal): Promise<Transport> {
    return new Promise((resolve, reject) => {
      let socket: WebSocketLike;
      let over = false; // one way or the other
      const end = (): boolean => {
        clearTimeout(timer);
        signal.removeEventListener("abort", gone);
        return !over && (over = true);
      };
      const failed = (attempt: Attempt): void => {
        if (end()) void unreached(url, attempt, signal).then((text) => reject(fault("unavailable", text)));
      };
      const gone = (): void => {
        end();
        reject(fault("canceled", "the client was closed"));
        socket.close();
      };
      const timer = setTimeout(() => {
        failed({ code: "ETIMEDOUT", message: "no answer in time" });
        socket.close();
      }, timeout);
      try {
        socket = new WebSocket(url);
      } catch (err) {
        end();
        reject(fault("unavailable", unopened(url, err)));
        return;
      }
      signal.addEventListener("abort", gone);
      socket.addEventListener("open", () => {
        if (end()) resolve(new Transport(socket));
      });
      socket.addEventListener("error", (event: { error?: { code?: string }; message?: string }) => {
        const { error, message = "" } = event, status = /Unexpected server response: (\d+)/.exec(message)?.[1]; // what ws tells
        failed({ code: error?.code, status: status === undefined ? undefined : Number(status), message });
      });
      socket.addEventListener("close", (event: { code: number }) => failed({ message: `closed with ${event.code}` }));
    });
  }

  send(message: string): void {
    if (this.#error) return; // receive tells
    try {
      this.#socket.send(message);
    } catch {
      this.#end(fault("disconnected", "the link broke"));
    }
  }

  receive(): Promise<string> {
    const next = this.#queue.shift();
    if (next !== undefined) return Promise.resolve(next);
    if (this.#error) return Promise.reject(this.#error);
    return new Promise((resolve, reject) => { this.#waiting = { resolve, reject }; });
  }

  abort(reason: unknown): void {
    this.close(reason instanceof MooringError ? reason : fault("disconnected", "the two sides did not understand each other"));
  }

  /** Ends the connection. */
  close(why: MooringError = fault("canceled", "the client was closed")): void {
    try {
      this.#socket.close(1000);
    } catch {
      // it was not open
    }
    // A server that does not answer is not waited for: the process could not end.
    const { terminate } = this.#socket;
    if (terminate !== undefined && this.#socket.readyState !== closed) {
      const timer = setTimeout(() => terminate.call(this.#socket), farewell);
      this.#socket.addEventListener("close", () => clearTimeout(timer));
    }
    this.#end(why);
  }

  #end(err: MooringError): void {
    if (this.#error) return;
    this.#error = err;
    this.#waiting?.reject(err);
    this.#waiting = undefined;
    this.#ended(err);
  }
}
