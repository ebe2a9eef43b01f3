// The keys of a session that hold transcripts of Claude's, as claude-session-store.ts keeps them:
//
//	claude/PROJECT/@sessions/SESSION               a session
//	claude/PROJECT/@summaries/SESSION              its summary
//	claude/PROJECT/SESSION/@main/ENTRY             an entry of its transcript
//	claude/PROJECT/SESSION/SUBPATH/ENTRY           an entry of a subagent's
//	claude/PROJECT/SESSION/@subpaths/SUBPATH       that there is one
//	claude/PROJECT/SESSION/@pieces/SUBPATH/HASH    a piece of an entry that is too large for one value
//
// So a ref that is limited to claude/PROJECT/ shows and writes one project, and with claude/PROJECT/SESSION/ and the session's own
// two keys one session.

import { bytesOf, sha256, toBase64url } from "./text.js";

/** Names a transcript: of a session or, with a subpath, of what belongs to it, as a subagent's. */
export type ClaudeSessionKey = { projectKey: string; sessionId: string; subpath?: string };

/** How long a name may be in a key: four of them and a piece's hash fit in one. */
const most = 100;

/**
 * A name as a segment of a key, which has letters, digits and some signs alone: other bytes as + and two hexadecimal digits, long names
 * as @ and their hash. Different names have different segments, and none is one of the segments above.
 */
export function segment(name: string): string {
  let out = "";
  for (const b of bytesOf(name)) {
    const c = String.fromCharCode(b);
    out += /[A-Za-z0-9_.:-]/.test(c) ? c : `+${b.toString(16).padStart(2, "0")}`;
  }
  return out === "" ? "@" : out.length <= most ? out : `@${toBase64url(sha256(bytesOf(name)))}`;
}

/** The keys of a transcript; prefixes end in "/". */
export class EntryKeys {
  readonly headers: string;
  readonly header: string;
  readonly summaries: string;
  readonly summary: string;
  /** Prefix of all keys of the session but its header and summary. */
  readonly session: string;
  readonly subpaths: string;
  /** Of the transcript's subpath. */
  readonly subpath: string;
  readonly entries: string;
  readonly pieces: string;

  constructor({ projectKey, sessionId, subpath }: ClaudeSessionKey) {
    const project = `claude/${segment(projectKey)}/`, session = segment(sessionId), sub = subpath ? segment(subpath) : "@main";
    this.headers = `${project}@sessions/`;
    this.header = this.headers + session;
    this.summaries = `${project}@summaries/`;
    this.summary = this.summaries + session;
    this.session = `${project}${session}/`;
    this.subpaths = `${this.session}@subpaths/`;
    this.subpath = this.subpaths + sub;
    this.entries = `${this.session}${sub}/`;
    this.pieces = `${this.session}@pieces/${sub}/`;
  }

  piece(hash: string): string {
    return this.pieces + hash;
  }
}
