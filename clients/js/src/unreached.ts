// Why a server cannot be reached, and what to do about it. WebSocket errors say little,
// those of browsers and newer Nodes nothing: then the same address is asked by HTTP.

import { clip } from "./fault.js";

/** The facts of a failed attempt. */
export interface Attempt {
  /** Node's name of the error. */
  readonly code?: string | undefined;
  /** The HTTP status of an answer that is not a WebSocket. */
  readonly status?: number | undefined;
  /** The target of a redirection. */
  readonly location?: string | undefined;
  /** The beginning of the answer, if its status says little. */
  readonly body?: string | undefined;
  /** The error as text; "" for none. */
  readonly message: string;
}

/** Whether this runs in a page, whose browser hides who answered, and what. */
const inPage = typeof document !== "undefined" || "WorkerGlobalScope" in globalThis;

const patience = 2000; // how long the server is asked, in ms
const most = 1024; // bytes of an answer that are read

/** Explains a failed attempt to open a WebSocket to url. It ends with signal. */
export async function unreached(url: string, failed: Attempt, signal: AbortSignal): Promise<string> {
  const at = url.replace(/^ws/, "mooring").replace(/\/rpc$/, "");
  if (failed.code !== undefined) return ofError(at, failed.code, failed.message);
  const unclear = failed.status === undefined || failed.status === 400 || (failed.status >= 300 && failed.status < 400);
  const answer = unclear ? await ask(url, signal) : failed;
  if (inPage) return inBrowser(at, answer.status !== undefined);
  if (answer.status !== undefined) return ofStatus(at, failed.status ?? answer.status, answer);
  return ofError(at, answer.code ?? "", answer.message || failed.message);
}

/** Explains why no attempt is possible. */
export function unopened(url: string, err: unknown): string {
  const insecure = inPage && url.startsWith("ws:") && location.protocol === "https:";
  return `no WebSocket to ${url} can be opened here (${err instanceof Error ? err.message : String(err)})` +
    (insecure ? ": a page that came over TLS reaches servers with TLS alone, a ref to one begins with moorings://" : "");
}

/** Asks for a path that any web server answers. */
async function ask(url: string, signal: AbortSignal): Promise<Attempt> {
  try {
    const response = await fetch(url.replace(/^ws/, "http"), {
      signal: AbortSignal.any([signal, AbortSignal.timeout(patience)]), cache: "no-store", credentials: "omit",
      ...(inPage ? { mode: "no-cors" } : { redirect: "manual" }),
    });
    const reader = response.body?.getReader();
    const start = response.status === 400 ? (await reader?.read())?.value : undefined;
    reader?.cancel().catch(() => {});
    return {
      status: response.status, location: response.headers.get("location") ?? undefined,
      body: new TextDecoder().decode(start?.subarray(0, most)), message: "",
    };
  } catch (err) {
    const { name, message, cause } = err as Error & { cause?: { code?: string; name?: string; message?: string } };
    const unnamed = name === "TimeoutError" ? "ETIMEDOUT" : cause?.name === "HTTPParserError" ? "HPE_" : undefined; // Node 24 gives that no code
    return { code: cause?.code ?? unnamed, message: cause?.message ?? message };
  }
}

function inBrowser(at: string, answered: boolean): string {
  const tls = at.startsWith("moorings:");
  if (answered) {
    return `what answers at ${at} opens no WebSocket to this page: is it a Mooring server, at that path, and does it let in the page's origin ` +
      `(serve --allow-origin)?${tls ? "" : " If it speaks TLS a ref to it begins with moorings://."} The browser's list of requests has its answer`;
  }
  return `no server answers at ${at}, as far as the browser tells: is it running, ${tls ? "does it speak TLS, and does the browser trust its certificate" :
    "and does it speak plain HTTP (if TLS, a ref to it begins with moorings://)"}? Opened in a tab, ${at.replace("mooring", "http")} shows more`;
}

function ofStatus(at: string, status: number, answer: Attempt): string {
  if (status >= 300 && status < 400 && answer.location !== undefined) {
    return `what answers at ${at} is elsewhere: the server redirects to ${whither(at, answer.location)}, which is not followed: if that is the right server, put its address in the ref`;
  }
  if (answer.body?.includes("HTTP request to an HTTPS server") || answer.body?.includes("HTTP request was sent to HTTPS port")) { // Go's, nginx's
    return `the server at ${at} speaks TLS: a ref to it begins with moorings://`;
  }
  switch (status) {
    case 403:
      return `the server at ${at} does not let in this origin (HTTP status 403): see serve --allow-origin`;
    case 426: // the request was not a WebSocket's
      return `the server at ${at} answers, and opened no WebSocket: does a proxy before it pass them on? Else it takes nobody now: try again later`;
    case 429: case 502: case 503: case 504:
      return `the server at ${at} is away or takes nobody now (HTTP status ${status}): try again later`;
  }
  return `what answers at ${at} is no Mooring server that offers Cap'n Web (HTTP status ${status}): is that its address, and its path, if it has one?`;
}

/** A redirection's target, without possible secrets. */
function whither(at: string, location: string): string {
  try {
    const url = new URL(location, at.replace("mooring", "http"));
    return clip(url.origin + url.pathname);
  } catch {
    return "no address";
  }
}

function ofError(at: string, code: string, message: string): string {
  const why = (message || code).trim();
  switch (code) {
    case "ERR_TLS_CERT_ALTNAME_INVALID":
      return `the certificate of the server at ${at} is for another name (${why}): use a ref that has the name, or is this another server?`;
    case "CERT_HAS_EXPIRED": case "CERT_NOT_YET_VALID": case "CERT_REVOKED": case "CERT_REJECTED":
      return `the certificate of the server at ${at} is not good (${why}): its owner has to renew it, or is the clock here wrong?`;
    case "ENOTFOUND": case "EAI_AGAIN":
      return `the host of ${at} is not found (${code}): is the ref right, and is there a network?`;
    case "ETIMEDOUT": case "UND_ERR_CONNECT_TIMEOUT": case "UND_ERR_HEADERS_TIMEOUT":
      return `nothing answers at ${at} in time: is the server running, reachable from here, and well?`;
    case "ECONNRESET": case "EPIPE": case "UND_ERR_SOCKET":
      return `what listens at ${at} hangs up without an answer: ${at.startsWith("moorings:") ? "is it a Mooring server, with TLS, and well?" :
        "is it a Mooring server, and well? If it speaks TLS a ref to it begins with moorings://"}`;
  }
  if (/CERT|SIGNATURE/.test(code)) {
    return `the certificate of the server at ${at} is not trusted (${why}): if it is the right server, trust its issuer with NODE_EXTRA_CA_CERTS=FILE in Node's environment`;
  }
  if (code.startsWith("HPE_")) {
    return `what answers at ${at} speaks no HTTP: if it speaks TLS a ref to it begins with moorings://, else it is no Mooring server`;
  }
  if (code === "EPROTO" || code.startsWith("ERR_SSL_")) {
    return /wrong version number|packet length too long/.test(message)
      ? `the server at ${at} speaks no TLS: a ref to it begins with mooring://, or is this another server?`
      : `the server at ${at} and this Node do not agree on how to speak TLS (${code})`;
  }
  return `no server answers at ${at} (${code || why || "it cannot be reached"}): is it running?`;
}
