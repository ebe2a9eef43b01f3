// Runs before anything is drawn: sets the chosen theme, and that scripts run.
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
