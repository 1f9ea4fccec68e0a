// Sets the theme, and whether a phone shows one counter or the list, before the first paint, so that nothing
// flashes or moves. Not a module: modules wait for the document.
(() => {
  const at = new URLSearchParams(location.hash.slice(1)), asked = at.get("theme");
  let kept = null;
  try {
    kept = localStorage.getItem("countmill-theme");
  } catch { /* a frame without storage goes by the system */ }
  const theme = [asked, kept].find((t) => t === "light" || t === "dark");
  if (theme) document.documentElement.dataset.theme = theme;
  document.documentElement.classList.toggle("one", Boolean(at.get("counter")));
})();
