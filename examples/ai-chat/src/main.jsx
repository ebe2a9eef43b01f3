import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport } from "ai";
import { useMemo, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { Session } from "./session.js";

function Chat({ session, history }) {
  const transport = useMemo(() => new DefaultChatTransport({ api: session.api, headers: session.headers }), [session]);
  const sent = useRef(null); // the message that this page has sent last
  const { messages, setMessages, sendMessage, resumeStream, status, error } = useChat({
    id: session.id,
    transport,
    messages: history,
    resume: true,
    onError: (err) => {
      if (err instanceof TypeError) setTimeout(goOn, 1000); // the link broke
    },
  });
  // A message that is sent again, with its id, is the same prompt, and its answer comes from its start.
  const goOn = async () => {
    if (sent.current !== null) return sendMessage({ parts: sent.current.parts, messageId: sent.current.id });
    setMessages(await session.history());
    return resumeStream();
  };
  const send = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("text").trim();
    if (text === "") return;
    event.target.reset();
    sent.current = { id: crypto.randomUUID(), parts: [{ type: "text", text }] };
    void sendMessage(sent.current);
  };
  const working = status === "submitted" || status === "streaming";
  return (
    <>
      {messages.map((m) => (
        <article key={m.id} className={m.role}>
          {m.parts.map((p, i) =>
            p.type === "text" || p.type === "reasoning" ? (
              <p key={i} className={p.type}>{p.text}</p>
            ) : p.type === "dynamic-tool" ? (
              <details key={i}>
                <summary>{p.title ?? p.toolName}: {p.state}</summary>
                <pre>{typeof p.output === "string" ? p.output : JSON.stringify(p.output ?? p.input, null, 2)}</pre>
              </details>
            ) : null,
          )}
        </article>
      ))}
      <p role="status" data-status={status}>{error === undefined ? (working ? "…" : "") : error.message}</p>
      <form onSubmit={send}>
        <input name="text" placeholder="Ask the agent" autoComplete="off" />
        <button>Send</button>
        <button type="button" disabled={!working} onClick={() => session.stop()}>Stop</button>
      </form>
    </>
  );
}

const root = createRoot(document.getElementById("root"));
try {
  const session = new Session(decodeURIComponent(location.hash.slice(1)));
  root.render(<Chat session={session} history={await session.history()} />);
} catch (err) {
  root.render(<p role="status">{err.message}</p>);
}
