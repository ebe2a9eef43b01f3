// A page that is left may be kept by the browser, and shown again as it was: what has
// been taken away since would be seen. So it is kept with nothing to see, and loaded anew.

export function leaving() {
  addEventListener("pagehide", (e) => e.persisted && (document.body.hidden = true));
  addEventListener("pageshow", (e) => e.persisted && location.reload());
}
