// JSON text: whether it is, and where its parts end, so that they can be kept byte for byte.

/** Whether a text has no unpaired surrogate, so that it has a UTF-8 form. */
export function isWellFormed(s: string): boolean {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(s);
}

/** How deep lists and objects may be nested: a server takes no more. */
const maxNesting = 10_000;

/** Whether a text is one JSON value that can be written as UTF-8, and not nested too deep. */
export function isJSON(text: string): boolean {
  try {
    JSON.parse(text);
  } catch {
    return false;
  }
  if (!isWellFormed(text)) return false;
  for (let i = 0, depth = 0; text.length > maxNesting && i < text.length; i++) {
    const c = text[i];
    if (c === '"') i = skipValue(text, i) - 1;
    else if (c === "{" || c === "[") {
      if (++depth > maxNesting) return false;
    } else if (c === "}" || c === "]") depth--;
  }
  return true;
}

/** Where the white space that begins at i ends. */
export function skipSpace(text: string, i: number): number {
  while (i < text.length && " \n\t\r".includes(text[i]!)) i++;
  return i;
}

/** Where the value that begins at i ends; the text is JSON. */
export function skipValue(text: string, i: number): number {
  let depth = 0;
  do {
    const c = text[i];
    if (c === '"') {
      for (i++; text[i] !== '"'; i++) if (text[i] === "\\") i++;
      i++;
    } else if (c === "{" || c === "[") {
      depth++;
      i++;
    } else if (c === "}" || c === "]") {
      depth--;
      i++;
    } else if (depth > 0) i++;
    else while (i < text.length && !",]} \n\t\r".includes(text[i]!)) i++;
  } while (depth > 0 && i < text.length);
  return i;
}

/** Where the value of an object's member begins and ends: of the last one of that name. undefined if there is none. */
export function memberAt(object: string, name: string): [number, number] | undefined {
  let found: [number, number] | undefined;
  for (let i = skipSpace(object, 0); object[i] === "{" || object[i] === ","; ) {
    const from = skipSpace(object, i + 1);
    if (object[from] !== '"') break; // it has no members
    const to = skipValue(object, from), at = skipSpace(object, skipSpace(object, to) + 1), end = skipValue(object, at);
    if (JSON.parse(object.slice(from, to)) === name) found = [at, end];
    i = skipSpace(object, end);
  }
  return found;
}
