// Pages of a list of tasks by the cursors of their last changes: what changes while it is read is not missed.

import { fault } from "./fault.js";

/** Where a list goes on. */
export interface Place {
  /** The session's cursor at the first page. */
  readonly began: number;
  /** The cursor of the last task that was given, and its id: tasks that a fork has of its source share a cursor. */
  readonly last: number;
  readonly id: string;
  /** Whether it goes on with the tasks that have changed since it began. */
  readonly changed: boolean;
}

interface Listed {
  readonly cursor: number;
  readonly id: string;
}

/** The first page's place, at a session's cursor. */
export const firstPlace = (cursor: number): Place => ({ began: cursor, last: cursor + 1, id: "", changed: false });

const byID = (a: Listed, b: Listed): number => (a.id < b.id ? -1 : Number(a.id > b.id));

/** A page of tasks, and the token of the next page; "" if there is none. */
export function pageOf<T extends Listed>(all: readonly T[], { began, last, id, changed }: Place, size: number): { page: T[]; next: string } {
  let page: T[] = [];
  if (!changed) {
    page = all.filter((t) => t.cursor <= began && (t.cursor < last || (t.cursor === last && t.id > id))).sort((a, b) => b.cursor - a.cursor || byID(a, b));
    if (page.length > size) {
      page = page.slice(0, size);
      const end = page[size - 1]!;
      return { page, next: `t.${began}.${end.cursor}.${end.id}` };
    }
    [last, id] = [began + 1, ""];
  }
  for (const t of all.filter((t) => t.cursor > last || (t.cursor === last && t.id > id)).sort((a, b) => a.cursor - b.cursor || byID(a, b))) {
    if (page.length === size) return { page, next: `c.${began}.${last}.${id}` };
    page.push(t);
    [last, id] = [t.cursor, t.id];
  }
  return { page, next: "" };
}

/** Reads a page's token; undefined for "", the first page's. bad_argument if it is none. */
export function placeOf(token: string): Place | undefined {
  if (token === "") return undefined;
  const [, kind, began, last, id] = /^([tc])\.([1-9]\d{0,15})\.(\d{1,16})\.([^]*)$/.exec(token) ?? [];
  if (kind === undefined) throw fault("bad_argument", "the page token is none that a list of tasks gave");
  return { began: Number(began), last: Number(last), id: id!, changed: kind === "c" };
}
