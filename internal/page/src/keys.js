// The keyboard, links and folds of a session's page.

import { nextTheme } from "./theme-button.js";

// reach(key) loads a message that is left out.
export function keys(contents, follower, search, reach) {
  const help = document.getElementById("help");
  const notice = document.getElementById("notice");
  const foldButton = document.querySelector("[data-do=fold]");
  let unfolded = false;
  let silent;

  const tell = (text) => {
    notice.textContent = text;
    clearTimeout(silent);
    silent = setTimeout(() => (notice.textContent = ""), 2500);
  };
  const copy = async (id) => {
    const link = `${location.href.split("#")[0]}#${id}`;
    try {
      await navigator.clipboard.writeText(link);
      tell("The link is copied");
    } catch {
      tell("The link is in the address bar");
    }
    history.replaceState(null, "", `#${id}`);
  };
  const fold = () => {
    unfolded = !unfolded;
    for (const d of document.querySelectorAll("#session details")) d.open = unfolded || d.classList.contains("think");
    foldButton.textContent = unfolded ? "Fold all" : "Unfold all";
    foldButton.setAttribute("aria-pressed", String(unfolded));
  };
  const go = async (step) => {
    const { turns } = contents;
    if (turns.length === 0) return;
    let at = contents.inView();
    const here = document.getElementById(`m-${turns[at]}`);
    // Going back within a turn leads to its beginning first.
    if (step > 0 && at === 0 && here && here.getBoundingClientRect().top > 120) at = -1;
    if (step < 0 && here && here.getBoundingClientRect().top < 0) at++;
    const turn = turns[Math.min(Math.max(at + step, 0), turns.length - 1)];
    await reach(`message/${turn}`);
    const article = document.getElementById(`m-${turn}`);
    follower.goTo(article);
    article?.querySelector(".link")?.focus({ preventScroll: true });
  };

  document.addEventListener("click", (e) => {
    const link = e.target.closest?.("a.link");
    if (link && !e.ctrlKey && !e.metaKey && !e.shiftKey) {
      e.preventDefault();
      copy(decodeURIComponent(link.hash.slice(1)));
    }
  });
  foldButton.addEventListener("click", fold);
  document.querySelector("[data-do=help]").addEventListener("click", () => help.showModal());

  const does = {
    j: () => go(1),
    k: () => go(-1),
    t: () => {
      search?.close();
      contents.open();
    },
    "/": () => search?.open(),
    f: fold,
    c: () => contents.turns.length > 0 && copy(`m-${contents.turns[contents.inView()]}`),
    g: () => scrollTo({ top: 0 }),
    G: () => follower.toEnd(),
    d: nextTheme,
    "?": () => help.showModal(),
  };
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]") || e.target.closest?.("input, select, textarea")) return;
    const does_ = does[e.key];
    if (does_) {
      e.preventDefault();
      does_();
    }
  });

  // For printing everything is unfolded.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("#session details:not([open])")];
    for (const d of closed) d.open = true;
  });
  addEventListener("afterprint", () => {
    for (const d of closed) d.open = false;
  });

  return { unfolds: () => unfolded, tell };
}
