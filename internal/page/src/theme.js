// Before anything is drawn: the theme that was chosen, and that there are scripts.
(() => {
  const root = document.documentElement;
  root.classList.add("script");
  try {
    const chosen = localStorage.getItem("mooring-theme");
    if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;
  } catch {
    // No storage: the system's theme.
  }
})();
