// A page that is left may be kept by the browser and shown again unchanged, with content that was
// removed since. So its content is hidden before it is kept, and it is loaded again.

export function leaving() {
  addEventListener("pagehide", (e) => e.persisted && (document.body.hidden = true));
  addEventListener("pageshow", (e) => e.persisted && location.reload());
}
