// Long sessions, as opencode syncs them.

const pad = (n) => String(n).padStart(6, "0");

/** Messages of some parts each: prose, code, reasoning, calls with output. */
export function* long(session, parts, each = 20) {
  yield { type: "session", data: { id: session, title: `${parts} parts` } };
  for (let m = 0; m < parts / each; m++) {
    const messageID = `msg_${pad(m)}`;
    yield { type: "message", data: { id: messageID, sessionID: session, role: m % 10 === 0 ? "user" : "assistant", time: { created: 1795000000000 + m * 1000 } } };
    for (let p = 0; p < each; p++) {
      const part = { id: `prt_${pad(m)}_${pad(p)}`, messageID, sessionID: session };
      const at = `${m}.${p}`;
      if (p % 5 === 1) yield { type: "part", data: { ...part, type: "reasoning", text: `Thought ${at}: ${"what follows from this? ".repeat(6)}` } };
      else if (p % 5 === 3) yield { type: "part", data: { ...part, type: "tool", tool: "bash", callID: at, state: { status: "completed", input: { command: `make part-${at}` }, output: `built ${at}\n`.repeat(12), title: at, metadata: {}, time: { start: 1, end: 2 } } } };
      else yield { type: "part", data: { ...part, type: "text", text: `Part **${at}** of the session.\n\n${"It says a little, as parts do. ".repeat(5)}\n\n\`\`\`go\nfunc part${m}_${p}() error { return nil }\n\`\`\`\n` } };
    }
  }
}
