// The button that cycles through the themes: the system's, light, dark.

const round = ["auto", "light", "dark"];
const root = document.documentElement;

export function nextTheme() {
  const theme = round[(round.indexOf(root.dataset.theme ?? "auto") + 1) % round.length];
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem("mooring-theme");
    else localStorage.setItem("mooring-theme", theme);
  } catch {
    // No storage: it lasts as long as the page.
  }
  label();
}

// Names the theme on the page's buttons; those of a page that arrives later are named then.
export function label() {
  for (const b of document.querySelectorAll("[data-do=theme]")) {
    b.title = `Theme: ${root.dataset.theme ?? "auto"}`;
    b.setAttribute("aria-label", b.title);
  }
}

// The listener is the document's, as that of signing out.
export function themeButton() {
  document.addEventListener("click", ({ target }) => target.closest?.("[data-do=theme]") && nextTheme());
}
