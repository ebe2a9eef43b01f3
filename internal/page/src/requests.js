// Asking the agent, answering what is asked and taking it back: the form below the log, and the buttons of open cards.
//
// What is asked or answered is first kept in the browser, and taken out when the server has answered: so it outlives a
// reload and a link that is down, and goes again with the same id, which the server does once.

import { act, newID } from "./act.js";
import { element } from "./dialog.js";

const firstPause = 2_000, // ms; the second is twice as long, and so on
  lastPause = 60_000;

// What waits to be sent under one ref, the first first: { id, do, … }.
export class Queue {
  #sending = false;
  #pause = firstPause;
  #timer;
  #place; // in localStorage
  #after; // called after each change, with what waits, what was sent and a refusal

  constructor(ref, after) {
    this.#place = `mooring-asked:${ref}:${location.pathname}`;
    this.#after = after;
    addEventListener("online", () => this.send());
    addEventListener("storage", (e) => e.key === this.#place && after(this.waiting()));
    after(this.waiting());
    this.send();
  }

  waiting() {
    try {
      return JSON.parse(localStorage.getItem(this.#place) ?? "[]");
    } catch {
      return [];
    }
  }

  #keep(list) {
    if (list.length === 0) localStorage.removeItem(this.#place);
    else localStorage.setItem(this.#place, JSON.stringify(list));
  }

  add(body) {
    this.#keep([...this.waiting(), body]);
    this.#after(this.waiting());
    this.send();
  }

  async send() {
    if (this.#sending) return;
    this.#sending = true;
    clearTimeout(this.#timer);
    for (let [next] = this.waiting(); next; [next] = this.waiting()) {
      const got = await act(next);
      if (got.again || got.signedOut) {
        this.#timer = setTimeout(() => this.send(), this.#pause * (1 + Math.random()));
        this.#pause = Math.min(2 * this.#pause, lastPause);
        this.#after(this.waiting(), next, got.refused);
        break;
      }
      this.#pause = firstPause;
      this.#keep(this.waiting().filter((body) => body.id !== next.id)); // another tab may have added some
      this.#after(this.waiting(), next, got.refused);
    }
    this.#sending = false;
  }
}

// Makes the form and the cards work, as far as the page's ref may.
export function requests(may) {
  const form = document.getElementById("composer");
  const answers = [...may].some((name) => name === "answer" || name.startsWith("answer-"));
  if (!form && !answers) return;
  const prompt = form?.elements.prompt;
  const stop = form?.querySelector("[data-ask=stop]");
  const refused = form?.querySelector(".refused");

  const { own } = document.body.dataset;
  const queue = new Queue(own, (waiting, done, why) => {
    const list = document.getElementById("queued");
    list?.replaceChildren(...waiting.filter((body) => body.do === "ask").map((body) => element("li", {}, `Waiting to be sent: ${body.kind === "stop" ? "stop" : body.text}`)));
    for (const card of document.querySelectorAll("#requests > .request")) {
      const sent = waiting.find((body) => body.request === card.dataset.request);
      if (sent) card.setAttribute("aria-busy", "true");
      else card.removeAttribute("aria-busy");
      for (const control of card.querySelectorAll("button, textarea")) control.disabled = Boolean(sent);
    }
    if (!done) return;
    const on = done.request && document.querySelector(`#requests [data-request="${CSS.escape(done.request)}"] .refused`);
    const says = on || refused;
    if (says) says.textContent = why ?? "";
    const over = !waiting.some((body) => body.id === done.id);
    if (why && over && done.kind === "prompt" && prompt?.value === "") prompt.value = done.text; // it can be sent again
  });

  form?.addEventListener("submit", (e) => {
    e.preventDefault();
    const text = prompt.value.trim();
    if (text === "") return prompt.focus();
    queue.add({ id: newID(), do: "ask", kind: "prompt", text });
    prompt.value = "";
  });
  prompt?.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) form.requestSubmit();
  });

  // The turn that is open: the last one, or, without turns, the last message if it is an answer that is not complete. The button names it.
  let soon;
  const offer = () => {
    soon = undefined;
    const last = [...document.querySelectorAll("#log .msg")].at(-1);
    const message = last?.dataset.open === undefined ? [...document.querySelectorAll("#log .head > .turn > :is(.streaming, .interrupted)")].at(-1)?.closest(".msg") : last;
    stop.hidden = !message;
    if (!message) return;
    stop.dataset.message = message.id.slice("m-".length);
    stop.textContent = "Stop this answer";
  };
  stop?.addEventListener("click", () => queue.add({ id: newID(), do: "ask", kind: "stop", message: stop.dataset.message }));
  if (stop) {
    new MutationObserver(() => (soon ??= setTimeout(offer, 200))).observe(document.getElementById("log"), { childList: true, subtree: true });
    offer();
  }

  // What was asked under the page's ref, and is not worked on yet, can be taken back.
  const takeBack = (card) => {
    const { state, request, under } = card.dataset;
    if (state !== "open" || !form || under !== own || card.querySelector(".withdraw")) return;
    const button = element("button", { class: "button", type: "button" }, "Withdraw");
    button.addEventListener("click", () => queue.add({ id: newID(), do: "withdraw", request }));
    button.disabled = queue.waiting().some((body) => body.request === request);
    card.querySelector(".body").append(element("div", { class: "withdraw does" }, button));
    if (!card.querySelector(".refused")) card.querySelector(".withdraw").append(element("p", { class: "refused", role: "alert" }));
  };

  const offerAnswers = (card) => {
    const { kind, state, request, digest } = card.dataset;
    if (state !== "open" || kind === "prompt" || kind === "stop") return; // the agent's own to answer
    if (card.dataset.whole === undefined || !(may.has("answer") || may.has(`answer-${kind}`)) || card.querySelector(".answers")) return;
    const choices = [...card.querySelectorAll(".choices > li")];
    const does = element("div", { class: "does" });
    const answer = element("form", { class: "answers" });
    const say = choices.length === 0 && element("textarea", { name: "answer", rows: "2", maxlength: "60000", dir: "auto", "aria-label": "Answer" });
    if (say) {
      answer.append(say);
      does.append(element("button", { class: "button primary" }, "Answer"));
    }
    for (const li of choices) {
      const button = element("button", { class: "button", type: "button", "data-choice": li.dataset.choice }, li.textContent);
      button.addEventListener("click", () => queue.add({ id: newID(), do: "answer", request, choice: li.dataset.choice, shown: digest }));
      does.append(button);
    }
    if (choices.length > 0) card.querySelector(".choices").hidden = true;
    answer.append(does, element("p", { class: "refused", role: "alert" }));
    answer.addEventListener("submit", (e) => {
      e.preventDefault();
      queue.add({ id: newID(), do: "answer", request, text: say.value.trim(), shown: digest });
    });
    card.querySelector(".body").append(answer);
    const sent = queue.waiting().some((body) => body.request === request);
    for (const control of answer.querySelectorAll("button, textarea")) control.disabled = sent;
  };
  const decorate = (card) => {
    offerAnswers(card);
    takeBack(card);
  };
  for (const card of document.querySelectorAll("#requests > .request")) decorate(card);
  document.addEventListener("mooring-changed", ({ detail: key }) => {
    const card = key.startsWith("request/") && document.querySelector(`#requests [data-key="${CSS.escape(key)}"]`);
    if (card) decorate(card);
  });
}
