// How figures, times and verdicts are put in words. Unknown is said, never shown as zero or left blank.
import { h } from "./dom.js";

export const unknown = () => h("span", { class: "unknown" }, "unknown");

// figure shows a number that may be unknown.
export const figure = (n) => (n === null || n === undefined ? unknown() : n.toLocaleString("en"));

export const plural = (n, thing) => `${n.toLocaleString("en")} ${thing}${n === 1 ? "" : "s"}`;

export function span(seconds) {
  const n = Math.max(0, Math.round(seconds));
  if (n < 120) return `${n} s`;
  if (n < 7200) return `${Math.round(n / 60)} min`;
  if (n < 172800) return `${Math.round(n / 3600)} h`;
  return `${Math.round(n / 86400)} days`;
}

export const clock = (text) => text.slice(0, 19).replace("T", " ") + "Z";

// when shows a time as people count it, with the exact one on it.
export function when(text, none = "unknown") {
  if (!text) return h("span", { class: "unknown" }, none);
  const ago = (Date.now() - Date.parse(text)) / 1000;
  const words = ago >= 0 ? `${span(ago)} ago` : `in ${span(-ago)}`;
  return h("time", { datetime: text, title: clock(text) }, words);
}

// The four causes, with the letter that stands for each where colour alone would not do.
export const causes = {
  policy: { letter: "P", short: "the scheduler chose otherwise", long: "Fewer domains had enough free GPUs when it started: the scheduler's policy split it." },
  timing: { letter: "T", short: "room would have come soon", long: "Fewer domains would have had room within the window, by the time limits of what ran." },
  repack: { letter: "R", short: "somebody would have had to move", long: "Enough GPUs were free in total, but not together: another job would have had to move." },
  capacity: { letter: "C", short: "not enough was free at all", long: "Not enough GPUs were free in the whole cluster." },
};

export const outcomes = {
  one_partition: { word: "One partition", kind: "ok", letter: "1", long: "Every GPU on one NVLink partition." },
  one_domain: { word: "One domain", kind: "ok", letter: "1", long: "Every GPU on one NVLink domain." },
  minimal_spread: { word: "Fewest domains", kind: "spread", letter: "=", long: "More than one domain, yet as few as its size allows or segments kept whole." },
  spill: { word: "Spill", kind: "spill", letter: "!", long: "More domains than needed, or a required level not met." },
  unknown: { word: "Unknown", kind: "unknown", letter: "?", long: "Neither a spill nor fine: some node's domain, or what domains could hold, is not known." },
  none: { word: "Not judged", kind: "none", letter: "-", long: "Nothing to judge on NVLink, or not judged yet." },
};

export const outcomeOf = (outcome) => outcomes[outcome ?? "none"] ?? outcomes.none;

// badge is a verdict in one word, with its letter.
export function badge(outcome, cause) {
  const o = outcomeOf(outcome);
  return h("span", { class: `badge ${o.kind}`, title: o.long }, h("span", { class: "letter", "aria-hidden": "true" }, o.letter), " ", o.word,
    cause ? `: ${cause}` : "");
}

export const jobHref = (job) => `/jobs/${encodeURIComponent(job.job_id)}?cluster=${encodeURIComponent(job.cluster)}` +
  (job.attempt === undefined ? "" : `&attempt=${job.attempt}`);

export const domainHref = (cluster, domain) => `/domains/${encodeURIComponent(domain)}?cluster=${encodeURIComponent(cluster)}`;

export const shardName = (shard) => shard.label ?? shard.domain;

// shapeText is 48+20+4.
export const shapeText = (shape) => (shape.length ? shape.map((p) => p.gpus ?? "?").join("+") : "unknown");
