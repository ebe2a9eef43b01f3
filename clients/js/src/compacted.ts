// The compacted view of a state that is followed: what its mark leaves out, as on the server (the Go package internal/session/hidden.go).

import { type Compacted, compareEntries, type Entry, type SessionEvent, type State } from "./session.js";

/** A mark, without who made it. */
export type Mark = Pick<Compacted, "upto" | "ord" | "summary" | "place">;

/** The message of the key of a message or a part; "" of other keys. */
export function messageIn(key: string): string {
  const [kind, id = ""] = key.split("/");
  return kind === "message" || kind === "part" ? id : "";
}

/** Whether an event is about what the view leaves out, and changes nothing in it. */
export function isLeftOut(state: State, { method, key }: SessionEvent): boolean {
  const message = messageIn(key);
  if (!state.view?.leftOut.has(message)) return false;
  if (key === `message/${message}` && (method === "remove" || method === "purge")) {
    state.view.leftOut.delete(message);
    state.stale = true; // its parts, if it has some, are shown now
  }
  return true;
}

/** Removes from the view of a state what its mark leaves out. */
export function leaveOut(state: State): void {
  const { view } = state, mark = view?.compacted;
  if (!view || !mark) return;
  for (const e of state.entries.values()) {
    if (e.key.startsWith("message/") && e.key !== mark.summary && compareEntries(e, at(mark.upto, mark.ord)) <= 0) view.leftOut.add(messageIn(e.key));
  }
  for (const key of [...state.entries.keys()]) if (view.leftOut.has(messageIn(key))) state.entries.delete(key);
  state.turns = state.turns.filter((t) => !view.leftOut.has(t.message));
}

/** Compacts the view to a mark; undefined is one that the reader is not shown. */
export function compact(state: State, mark: Mark | undefined): void {
  const { view } = state;
  if (!view) return;
  const before = view.compacted;
  if (!mark || view.leftOut.has(messageIn(mark.summary)) || (before && compareEntries(at(mark.upto, mark.ord), at(before.upto, before.ord)) < 0)) state.stale = true;
  view.compacted = mark;
  leaveOut(state);
}

/** Ends the compaction if its summary leaves the state, or a revert to a place hides it: what was left out is not there. */
export function endCompaction(state: State, summary: string, revertedTo?: Entry["ord"]): void {
  const mark = state.view?.compacted;
  if (!mark) return;
  if (revertedTo ? compareEntries(at(mark.summary, mark.place), at(summary, revertedTo)) < 0 : mark.summary !== summary) return;
  state.view!.compacted = undefined;
  state.stale = true;
}

const at = (key: string, ord: Entry["ord"]): Entry => ({ key, ord }) as Entry;
