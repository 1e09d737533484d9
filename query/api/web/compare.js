// Compare: one run against earlier ones of the same user and name.
import { h, table, withCode } from "./dom.js";
import { badge, clock, figure, jobHref, plural, span, unknown } from "./words.js";

const words = { worse: ["wrong", "✗ Placed worse than last time"], better: ["ok", "✓ Placed better than last time"], same: ["ok", "= Placed as last time"] };

// comparedIn is the answer in one word.
export function comparedIn(c) {
  const [kind, word] = words[c?.placement] ?? [];
  return word ? h("span", { class: `state ${kind}` }, word) : "";
}

// compareCard says how a run sits against the ones before it, and lists them with the run itself on top.
export function compareCard(c) {
  const runs = [{ ...c.this, mine: true }, ...c.earlier];
  return [
    c.placement ? h("p", null, comparedIn(c)) : null,
    c.lines.map((l) => h("p", { class: c.placement ? null : "muted" }, withCode(l))),
    c.earlier.length === 0 ? null : table(`This run and ${plural(c.earlier.length, "earlier one")}, newest first`, [
      { head: "Job", cell: (r) => (r.mine ? h("b", null, "this run") : h("a", { href: jobHref({ ...r, cluster: c.cluster }) }, r.job_id, r.attempt ? ` (attempt ${r.attempt})` : "")) },
      { head: "Started", cell: (r) => (r.start ? h("time", { datetime: r.start }, clock(r.start)) : unknown()) },
      { head: "Verdict", cell: (r) => badge(r.outcome, r.cause) },
      { head: "GPUs", number: true, cell: (r) => figure(r.gpus) },
      { head: "Domains", number: true, cell: (r) => [r.unknown_nodes && r.domains_used !== null ? "at least " : "", figure(r.domains_used)] }, { head: "Would do", number: true, cell: (r) => figure(r.domains_min) },
      { head: "Ran", number: true, cell: (r) => (r.ran_seconds === null ? (r.state === "running" ? "runs" : unknown()) : span(r.ran_seconds)) },
      { head: "Balance", number: true, cell: (r) => (r.balance === null ? unknown() : r.balance.toFixed(2)) },
      { head: "Waited", number: true, cell: (r) => (r.waited_seconds === null ? unknown() : span(r.waited_seconds)) },
      { head: "Scale-out GB/s", number: true, cell: (r) => (r.scale_out_gb_s === null ? unknown() : r.scale_out_gb_s.toFixed(1)) },
    ], runs),
    h("p", { class: "muted" }, `Compared: ${c.basis}.`)];
}
