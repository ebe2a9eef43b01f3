// The page of who has access: sharing, revoking, replacing the owner's ref. What will end is shown first.

import { act, newID, newSecret } from "./act.js";
import { ask, element, madeRef } from "./dialog.js";

const words = {
  read: "see it",
  append: "write to it",
  share: "give on what it may",
  revoke: "see and end what it gave",
  break: "end others' claims",
  schema: "say what values may be",
  revert: "hide messages and show them again",
  compact: "mark a summary",
  ask: "ask its agent, and people",
  answer: "work on what is asked, and answer it",
  create: "make sessions",
  list: "list the sessions",
  manage: "act in every session as its owner",
};
const hour = 3_600_000;
const lives = [["1 hour", hour], ["1 day", 24 * hour], ["7 days", 7 * 24 * hour], ["30 days", 30 * 24 * hour], ["for ever", 0]];
const once = "Whoever has it may do all that it allows. It is shown this once: keep it now.";

const managed = /\/sessions\/ses_[^/]+\/access$/.test(location.pathname);
const ofSpace = /\/sessions\/access$/.test(location.pathname);

export function access() {
  const does = { share, revoke, epoch, rotate };
  document.addEventListener("click", (e) => {
    const button = e.target.closest?.("[data-act]");
    if (button) does[button.dataset.act]?.(button);
  });
}

const anew = () => location.reload();
const keys = (text) => text.split(/[\s,]+/).filter(Boolean);

function share() {
  const rights = document.getElementById("session").dataset.rights.split(" ");
  const usual = ofSpace ? "list" : "read";
  const tick = (name) => element("label", { class: "tick" }, element("input", { type: "checkbox", name: "right", value: name, checked: name === usual }), element("span", {}, element("strong", {}, name), ` ${words[name] ?? ""}`));
  const field = (label, attributes) => element("label", {}, label, element("input", { autocomplete: "off", spellcheck: "false", ...attributes }));
  const below = [["nothing", ""], ["see them", "read"], ["see them and write to them", "read append"]];
  const limits = ofSpace ? [] : [element("label", {}, "In the sessions that this one starts it may", element("select", { name: "children" }, ...below.map(([name, value]) => element("option", { value }, name)))), field("One message alone: its id", { name: "message", placeholder: "msg_…" }), field("Keys that it shows", { name: "read", placeholder: "all; or todo/, plan" }), field("Keys that it writes", { name: "write", placeholder: "all; or todo/mine/" })];
  for (const [right, does] of [["ask", "asks"], ["answer", "answers"]]) {
    if (rights.includes(right)) limits.push(field(`Kinds of requests that it ${does}`, { name: right, placeholder: "all; or prompt, permission" }));
  }
  ask({
    title: "Share",
    choices: [
      {
        fields: [
          element("fieldset", {}, element("legend", {}, "Who has the new ref may"), ...rights.map(tick)),
          field("What it is for", { name: "label", maxlength: "200", placeholder: "a name for people" }),
          element("label", {}, "It ends after", element("select", { name: "life" }, ...lives.map(([name, ms]) => element("option", { value: String(ms), selected: name === "7 days" }, name)))),
          element("details", { class: "more" }, element("summary", {}, "More limits"), field("Opened at most so often", { name: "redemptions", type: "number", min: "1", max: "1000000", placeholder: "any number of times" }), field("Acts as", { name: "actor", placeholder: "a name below this ref's" }), ...limits),
        ],
        button: "Make the ref",
        request: ({ elements }) => ({
          do: "share",
          secret: newSecret(),
          rights: [...elements.right.length === undefined ? [elements.right] : elements.right].filter((box) => box.checked).map((box) => box.value),
          label: elements.label.value.trim(),
          expires_in: Number(elements.life.value),
          redemptions: Number(elements.redemptions.value),
          actor: elements.actor.value.trim(),
          children: elements.children?.value ? elements.children.value.split(" ") : undefined,
          message: elements.message?.value.trim(),
          read_keys: elements.read?.value ? keys(elements.read.value) : undefined,
          write_keys: elements.write?.value ? keys(elements.write.value) : undefined,
          ask_kinds: elements.ask?.value ? keys(elements.ask.value) : undefined,
          answer_kinds: elements.answer?.value ? keys(elements.answer.value) : undefined,
        }),
        shown: (made) => madeRef(made, once),
      },
    ],
    after: anew,
  });
}

const time = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

// What would end: of the living refs below one, itself among them, or of all that this page's ref shows, those that which() says.
async function ends(ref, which = () => true) {
  const { done, refused } = await act({ id: newID(), do: "cuts", ref });
  if (refused) return element("p", { class: "refused" }, refused);
  const cuts = (done.cuts ?? []).filter(which);
  if (cuts.length === 0) return element("p", { class: "hint" }, done.more ? "There are too many refs to say here what would end." : "Nothing that lives would end.");
  return element(
    "div",
    { class: "cuts" },
    element("p", {}, `${done.more ? "More than " : ""}${cuts.length === 1 ? "One ref ends" : `${cuts.length} refs end`}, for open connections too, at once:`),
    element(
      "ul",
      { tabindex: "0", "aria-label": "What ends" },
      ...cuts.map((c) =>
        element("li", {}, element("strong", { dir: "auto" }, c.label || (c.owner ? "The owner's ref" : c.actor || "A ref")), ` ${c.rights} `, element("span", { class: "meta" }, c.uses === 0 ? "never used" : `${c.uses} ${c.uses === 1 ? "use" : "uses"}, last ${time.format(c.last_used)}`)),
      ),
    ),
  );
}

async function revoke(button) {
  const { ref, owner } = button.dataset;
  ask({
    title: "Revoke",
    about: await ends(ref),
    choices: [
      {
        text: owner === undefined ? undefined : "This is an owner's ref: with it every ref ends, perhaps the last that opens it.",
        button: "Revoke",
        danger: true,
        request: () => ({ do: "revoke", ref, take_over: managed && owner !== undefined }),
      },
    ],
    after: anew,
  });
}

async function epoch() {
  ask({ title: "Revoke every share", about: await ends(undefined, (cut) => !cut.owner), choices: [{ text: "The owner's ref goes on. A new epoch begins.", button: "Revoke every share", danger: true, request: () => ({ do: "epoch" }) }], after: anew });
}

async function rotate() {
  ask({
    title: ofSpace ? "Replace the root ref" : "Replace the owner's ref",
    about: await ends(undefined, (cut, i) => (ofSpace ? i === 0 : cut.owner)),
    choices: [
      {
        text: `A new ref takes its place, and what was made from the old one lives on below it.${managed ? " Whoever has the old one loses the session." : ""}`,
        button: "Replace it",
        danger: true,
        request: () => ({ do: "rotate", secret: newSecret(), take_over: managed }),
        shown: (made) => madeRef(made, once),
      },
    ],
    after: ({ link }) => (managed ? anew() : location.assign(link)),
  });
}
