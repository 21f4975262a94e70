// Runs before the first paint, so that the page does not flash in the wrong theme.
(function () {
  try {
    var root = document.documentElement;
    root.dataset.theme = localStorage.getItem("crossfade-theme") || "auto";
    root.dataset.scaling = localStorage.getItem("crossfade-scaling") || "pixels";
  } catch (_) {
    // Without storage the defaults of the stylesheet hold.
  }
})();
