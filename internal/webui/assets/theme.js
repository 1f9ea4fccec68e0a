// Sets the theme, and whether a phone shows one counter or the list, before the first paint, so that nothing
// flashes or moves. Not a module: modules wait for the document.
(() => {
  const at = new URLSearchParams(location.hash.slice(1)), asked = at.get("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const show = () => document.documentElement.classList.toggle("dark", asked ? asked === "dark" : dark.matches);
  show();
  dark.addEventListener("change", show);
  document.documentElement.classList.toggle("one", Boolean(at.get("counter")));
})();
