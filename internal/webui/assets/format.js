// Numbers, times and durations as people read them. Nothing here touches the page.

const grouped = new Intl.NumberFormat();
const oneDecimal = new Intl.NumberFormat(undefined, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 3 });

export const unknown = "–";

// whole takes a BigInt or a number.
export const whole = (n) => grouped.format(n);

// count is whole, and short from a million on.
export const count = (n) => (Math.abs(n) >= 1e6 ? short : grouped).format(n);

// rate has about three digits: more would flicker.
export function rate(n) {
  const size = Math.abs(n);
  if (size >= 1e6) return short.format(n);
  if (size >= 100 || n === 0) return grouped.format(Math.round(n));
  return oneDecimal.format(n);
}

// change is a rate with its sign, empty for none.
export function change(n) {
  if (Math.abs(n) < 0.05) return "";
  return (n > 0 ? "+" : "−") + rate(Math.abs(n)) + "/s";
}

// seconds is a duration.
export function seconds(s) {
  if (s === 0) return "0 s";
  if (s < 1) return Math.max(1, Math.round(s * 1000)) + " ms";
  if (s < 10) return oneDecimal.format(s) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  return Math.round(s / 3600) + " h";
}

// clock is the time of day in a zone.
export const clock = (date, timeZone) =>
  new Intl.DateTimeFormat(undefined, { timeZone, hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }).format(date);

// moment is a time of a curve, as fine as its step.
export function moment(date, timeZone, step) {
  const day = { timeZone, day: "numeric", month: "short", year: "numeric" };
  if (step === "day") return new Intl.DateTimeFormat(undefined, { weekday: "short", ...day }).format(date);
  const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (step === "second") time.second = "2-digit";
  return new Intl.DateTimeFormat(undefined, { timeZone, day: "numeric", month: "short", ...time }).format(date);
}

// sentence is the text of an error. One without a status is the browser's own.
export const sentence = (err) => !err.status ? "The server does not answer." : err.message.charAt(0).toUpperCase() + err.message.slice(1) + ".";

export const isZone = (name) => {
  try {
    new Intl.DateTimeFormat(undefined, { timeZone: name });
    return name !== "";
  } catch {
    return false;
  }
};

export const ownZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
