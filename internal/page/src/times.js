// Times in the reader's own time zone and format, set when the browser is idle.

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const idle = window.requestIdleCallback ?? ((f) => setTimeout(() => f({ timeRemaining: () => 8 }), 50));

export function localTimes(within) {
  const times = within.querySelectorAll("time"); // a static list: elements may be moved meanwhile
  let next = 0;
  const some = (deadline) => {
    while (next < times.length && deadline.timeRemaining() > 2) {
      const t = times[next++];
      const at = new Date(t.dateTime);
      if (!Number.isNaN(at.getTime())) t.textContent = (t.className === "clock" ? clock : format).format(at);
    }
    if (next < times.length) idle(some);
  };
  if (times.length > 0) idle(some);
}
