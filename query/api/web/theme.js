// Runs before the first paint, so that a chosen theme does not flash in. The choice is auto, light or dark.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("spillway-theme");
  } catch {
    // Storage may be switched off; then the system's own theme holds.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
