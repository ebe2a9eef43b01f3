// JSON text: whether it is, and where its parts end, so that they can be kept byte for byte.

/** Whether a text has no unpaired surrogate, so that it has a UTF-8 form. */
export function isWellFormed(s: string): boolean {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(s);
}

/** Whether a text is one JSON value that can be written as UTF-8. */
export function isJSON(text: string): boolean {
  try {
    JSON.parse(text);
  } catch {
    return false;
  }
  return isWellFormed(text);
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
