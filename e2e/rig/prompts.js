// Prompts that are told apart by their texts, and what the model has seen of each.

/** A content of a message, as text. */
const textOf = (message) => (typeof message.content === "string" ? message.content : JSON.stringify(message.content));

export class Prompts {
  /** How many there are. */
  count;
  /** Those that the model has seen twice in one request. */
  doubled = [];
  /** How often the model was asked to begin with each. */
  begun;

  constructor(count) {
    this.count = count;
    this.begun = Array(count).fill(0);
  }

  #tag(n) {
    return `<<prompt ${n}>>`;
  }

  /** The text of one. */
  text(n) {
    return `${this.#tag(n)} do it.`;
  }

  /** Takes the messages of a request to the model. */
  seen(messages) {
    const said = messages.filter((m) => m.role === "user").map(textOf).join("\n");
    for (let n = 0; n < this.count; n++) {
      const times = said.split(this.#tag(n)).length - 1;
      if (times > 1) this.doubled.push(`${this.#tag(n)} is there ${times} times`);
    }
    const last = messages.at(-1);
    if (last?.role !== "user") return; // it goes on
    const tag = [...textOf(last).matchAll(/<<prompt (\d+)>>/g)].at(-1);
    if (tag === undefined) return;
    this.begun[Number(tag[1])]++;
  }
}
