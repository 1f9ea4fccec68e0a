// The ranges of a curve.

const hour = 3600e3, day = 24 * hour;

// step is that of GET /v1/series, with its unit. A rule may keep no minutes: otherwise is the step and the unit
// then. grain is how fine times are shown.
export const ranges = {
  live: { words: "the last five minutes", unit: "per second", grain: "second" },
  hour: { long: hour, step: "1m", words: "the last hour", unit: "per minute", otherwise: { step: "15m", unit: "per quarter hour" }, grain: "minute", refresh: 10e3 },
  day: { long: day, step: "15m", words: "the last 24 hours", unit: "per quarter hour", grain: "minute", refresh: 60e3 },
  month: { long: 30 * day, step: "1d", words: "the last 30 days", unit: "per day", grain: "day", refresh: 300e3, bars: true },
  year: { long: 365 * day, step: "1d", words: "the last 365 days", unit: "per day", grain: "day", refresh: 600e3 },
};

export const isRange = (name) => Object.hasOwn(ranges, name);
