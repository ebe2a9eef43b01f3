// Pages of a list of tasks by the cursors of their last changes: what changes while it is read is not missed.

import { fault } from "./fault.js";

/** Where a list goes on. */
export interface Place {
  /** The session's cursor at the first page. */
  readonly began: number;
  /** The cursor of the last task that was given. */
  readonly last: number;
  /** Whether it goes on with the tasks that have changed since it began. */
  readonly changed: boolean;
}

/** A page of tasks, and the token of the next page; "" if there is none. */
export function pageOf<T extends { readonly cursor: number }>(all: readonly T[], { began, last, changed }: Place, size: number): { page: T[]; next: string } {
  let page: T[] = [];
  if (!changed) {
    page = all.filter((t) => t.cursor <= began && t.cursor < last).sort((a, b) => b.cursor - a.cursor);
    if (page.length > size) {
      page = page.slice(0, size);
      return { page, next: `t.${began}.${page[size - 1]!.cursor}` };
    }
    last = began;
  }
  for (const t of all.filter((t) => t.cursor > last).sort((a, b) => a.cursor - b.cursor)) {
    if (page.length === size) return { page, next: `c.${began}.${last}` };
    page.push(t);
    last = t.cursor;
  }
  return { page, next: "" };
}

/** Reads a page's token; undefined for "", the first page's. bad_argument if it is none. */
export function placeOf(token: string): Place | undefined {
  if (token === "") return undefined;
  const [, kind, began, last] = /^([tc])\.([1-9]\d{0,15})\.(\d{1,16})$/.exec(token) ?? [];
  if (kind === undefined) throw fault("bad_argument", "the page token is none that a list of tasks gave");
  return { began: Number(began), last: Number(last), changed: kind === "c" };
}
