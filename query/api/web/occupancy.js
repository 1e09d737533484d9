// Occupancy: who held GPUs of one domain over a time.
import { box, h, put, table } from "./dom.js";
import { Refusal, get } from "./api.js";
import { badge, clock, figure, jobHref, plural, unknown } from "./words.js";

const utc = (input) => (input.value ? `${input.value.length === 16 ? `${input.value}:00` : input.value}Z` : "");

// occupancy makes the section; ask(domain, cluster) reads it again. The times stand in the address as since and until.
export function occupancy(route, changed) {
  const field = (label, name) => {
    const input = h("input", { type: "datetime-local", step: "1", value: (route.query.get(name) ?? "").slice(0, 19), onchange: () => changed() });
    return [input, h("label", { class: "field" }, h("span", null, label), input)];
  };
  const [since, sinceField] = field("From (UTC), empty = a day before", "since");
  const [until, untilField] = field("To (UTC), empty = now", "until");
  const out = h("div", null, box("loading", "Reading who was here…"));
  return {
    section: h("section", { class: "panel" }, h("h2", null, "Who was here"), h("div", { class: "controls" }, sinceField, untilField), out),
    times: () => ({ since: utc(since), until: utc(until) }),
    async ask(domain, cluster) {
      const to = utc(until) || new Date().toISOString();
      const from = utc(since) || new Date(Date.parse(to) - 86400e3).toISOString();
      try {
        draw(await get("/v1/audit/occupancy", { domain, cluster, since: from, until: to, limit: 500 }));
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        put(out, box(error.status === 404 ? "unknown" : "wrong", error.status === 404 ? "Nothing was known of it by then." : "Cannot ask that", `${error.message}.`));
      }
    },
  };

  function draw(o) {
    const time = `${clock(o.since)} to ${clock(o.until)}`;
    if (o.stays.length === 0) return put(out, box("empty", "Nobody held GPUs here.", `From ${time}, as far as placements were judged. Jobs on nodes whose domain was not known then are not in it.`));
    return put(out, table(`By account, ${time}`, [
      { head: "Account", cell: (a) => a.account || h("span", { class: "unknown" }, "not told") }, { head: "Stays", number: true, cell: (a) => figure(a.jobs) },
      { head: "GPU-hours here", number: true, cell: (a) => [a.gpu_hours.toFixed(1), a.unknown_stays ? [" and ", unknown(), ` for ${plural(a.unknown_stays, "stay")}`] : ""] },
    ], o.accounts), table(`${o.stays.length} of ${plural(o.total, "stay")}, newest first`, [
      { head: "Job", cell: (x) => h("a", { href: jobHref({ ...x, cluster: o.cluster }) }, x.job_id, x.attempt ? ` (attempt ${x.attempt})` : "") }, { head: "User", cell: (x) => `${x.user || "not known"} (${x.account || "account not told"})` },
      { head: "From", cell: (x) => h("time", { datetime: x.from }, clock(x.from)) }, { head: "To", cell: (x) => (x.to ? h("time", { datetime: x.to }, clock(x.to)) : "still here") },
      { head: "GPUs here", number: true, cell: (x) => figure(x.gpus_here) }, { head: "Nodes here", number: true, cell: (x) => figure(x.nodes_here) }, { head: "Domains", number: true, cell: (x) => figure(x.domains_used) },
      { head: "Verdict", cell: (x) => (x.probe ? "probe job" : badge(x.outcome)) },
    ], o.stays));
  }
}
