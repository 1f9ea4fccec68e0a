// Sets the theme before the first paint, so that the page does not flash. Not a module: modules wait
// for the document.
(() => {
  const asked = new URLSearchParams(location.hash.slice(1)).get("theme");
  let kept = null;
  try {
    kept = localStorage.getItem("countmill-theme");
  } catch { /* a frame without storage goes by the system */ }
  const theme = [asked, kept].find((t) => t === "light" || t === "dark");
  if (theme) document.documentElement.dataset.theme = theme;
})();
