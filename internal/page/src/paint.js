// Replaces this page by the one in a reply, while it arrives: it is parsed in a document without a window, in which
// nothing runs, and its body is moved here as it grows.

export async function paint(reply) {
  const parsed = document.implementation.createHTMLDocument();
  parsed.open(); // or what is written is put into its body
  const decoder = new TextDecoder();
  let shown = false;
  try {
    for (const pieces = reply.body.getReader(); ; ) {
      const { value, done } = await pieces.read();
      parsed.write(done ? decoder.decode() : decoder.decode(value, { stream: true }));
      if (!shown && parsed.body) {
        const { page } = parsed.body.dataset;
        if (page !== "session" && page !== "sessions" && page !== "access") throw new Error("the server knows no tokens");
        document.title = parsed.title;
        document.body.replaceWith(document.adoptNode(parsed.body));
        shown = true;
      }
      if (done) break;
    }
    parsed.close();
  } catch (err) {
    if (!shown) throw err;
    delete document.body.dataset.live;
    document.getElementById("line").dataset.state = "waiting";
    document.getElementById("state").textContent = "Loading broke off: load the page again";
  }
}
