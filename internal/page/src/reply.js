// The text of a server's refusal.
export async function reason(reply) {
  try {
    const body = await reply.json();
    const text = body.message ?? body.error?.message ?? body.error;
    if (typeof text === "string" && text) return text;
  } catch {
    // Not JSON: the status has to do.
  }
  return `The server refuses (${reply.status} ${reply.statusText}).`;
}
