// Report: what spills and fragmentation took of a time, by account and cause, and what to change.
import { box, copyable, h, put, table } from "./dom.js";
import { get } from "./api.js";
import { clock, figure, jobHref, plural, unknown } from "./words.js";

const backs = [["1d", "1 day", 1], ["7d", "7 days", 7], ["30d", "30 days", 30]];
const hours = (n) => (n === null ? unknown() : n > 0 && n < 10 ? n.toFixed(1) : Math.round(n).toLocaleString("en"));
const share = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "-");

// lost is an interval where traffic was measured, and unknown for the rest: never zero for what nobody measured.
function lost(use) {
  if (use.spilled === 0) return "0";
  if (use.lost_gpu_hours_most === null) return unknown();
  const interval = [hours(use.lost_gpu_hours_least), " to ", hours(use.lost_gpu_hours_most)];
  return use.unmeasured_gpu_hours > 0 ? [...interval, ", and ", unknown(), " for ", hours(use.unmeasured_gpu_hours), " exposed"] : interval;
}

// asked tells, queue by queue, how often a wish ended wider than it needed to.
function asked(list) {
  if (list.length === 0) return box("empty", "No placement began in this time.");
  return table("Placements by queue and wish", [
    { head: "Queue", cell: (o) => o.queue || h("span", { class: "unknown" }, "not told") }, { head: "Asked for", cell: (o) => ({ none: "nothing", unknown: unknown() })[o.asked] ?? o.asked }, { head: "Placements", number: true, cell: (o) => figure(o.placements) },
    { head: "As narrow as can be", number: true, cell: (o) => figure(o.kept) }, { head: "Wider", number: true, cell: (o) => figure(o.wider) }, { head: "Of those judged", number: true, cell: (o) => share(o.wider, o.wider + o.kept) },
    { head: "Domains too many", number: true, cell: (o) => (o.wider === 0 ? "-" : o.mean_excess_domains === null ? unknown() : o.mean_excess_domains.toFixed(1)) }, { head: "Promise broken", number: true, cell: (o) => figure(o.broken) },
    { head: "Cannot be judged", number: true, cell: (o) => figure(o.unknown) }, { head: "Cluster", cell: (o) => o.cluster },
  ], list);
}

export function open(root, route, shell) {
  shell.title("Report");
  let back = backs.find(([b]) => b === route.query.get("since")) ?? backs[1];
  const out = h("div", null, box("loading", "Summing up…"));
  put(root, h("h1", null, "What spills and fragmentation took"),
    h("div", { class: "controls" }, h("label", { class: "field" }, h("span", null, "Of the last"), h("select", { onchange: (e) => {
      back = backs.find(([b]) => b === e.target.value);
      shell.replace({ since: back[0] });
      shell.again();
    } }, backs.map((b) => h("option", { value: b[0], selected: b === back }, b[1]))))), out);
  return {
    every: 0,
    async refresh() {
      const since = new Date(Date.now() - back[2] * 86400e3).toISOString();
      const [r, wishes] = await Promise.all([get("/v1/report", { since }), get("/v1/outcomes", { since })]);
      const t = r.total;
      put(out,
        h("p", { class: "summary" }, `${clock(r.since)} to ${clock(r.until)}: ${plural(t.placements, "placement")}, `, hours(t.gpu_hours), " GPU-hours."),
        h("section", { class: "panel" }, h("dl", { class: "facts" },
          h("dt", null, "Exposed to spill"), h("dd", null, hours(t.exposed_gpu_hours), ` GPU-hours, ${share(t.exposed_gpu_hours, t.gpu_hours)} of all, ${plural(t.spilled, "spill")}`),
          h("dt", null, "Lost to spill"), h("dd", null, lost(t), " GPU-hours"),
          h("dt", null, "Stranded"), h("dd", null, hours(r.stranded.stranded_gpu_hours), ` GPU-hours in no slot of ${r.stranded.slot_gpus}, ${share(r.stranded.stranded_gpu_hours, r.stranded.free_gpu_hours)} of what was free`),
          h("dt", null, "Cannot be judged"), h("dd", null, hours(t.unknown_gpu_hours), ` GPU-hours, ${plural(t.unknown, "placement")}`))),
        h("section", { class: "panel" }, h("h2", null, "What to change"), r.changes.length ? h("ol", { class: "why" }, r.changes.map((c) => h("li", null, c))) : box("empty", "Nothing stands out.")),
        h("section", { class: "panel" }, h("h2", null, "By account"), r.accounts.length === 0 ? box("empty", "No account held anything.") : table(plural(r.accounts.length, "account"), [
          { head: "Account", cell: (a) => a.account || h("span", { class: "unknown" }, "not told") }, { head: "Cluster", cell: (a) => a.cluster },
          { head: "GPU-hours", number: true, cell: (a) => hours(a.gpu_hours) }, { head: "Exposed", number: true, cell: (a) => hours(a.exposed_gpu_hours) }, { head: "Of its own", number: true, cell: (a) => share(a.exposed_gpu_hours, a.gpu_hours) },
          { head: "Lost", number: true, cell: (a) => lost(a) }, { head: "Stranded beside it", number: true, cell: (a) => hours(a.stranded_gpu_hours) }, { head: "Cannot be judged", number: true, cell: (a) => hours(a.unknown_gpu_hours) },
        ], r.accounts)),
        h("section", { class: "panel" }, h("h2", null, "What jobs asked for, and got, by queue"), asked(wishes.outcomes)),
        h("section", { class: "panel" }, h("h2", null, "Why it spilled"), r.causes.length === 0 ? box("empty", "Nothing was judged a spill.") : table("Causes", [
          { head: "Cause", cell: (c) => c.cause ?? unknown() }, { head: "Spills", number: true, cell: (c) => figure(c.placements) }, { head: "Exposed GPU-hours", number: true, cell: (c) => hours(c.exposed_gpu_hours) }, { head: "Share", number: true, cell: (c) => share(c.exposed_gpu_hours, t.exposed_gpu_hours) },
        ], r.causes), r.worst.length ? table("Largest spills", [
          { head: "Job", cell: (j) => h("a", { href: jobHref(j) }, j.job_id) }, { head: "Name", cell: (j) => j.name }, { head: "User", cell: (j) => `${j.user} (${j.account || "account not told"})` }, { head: "Cause", cell: (j) => j.cause ?? unknown() },
          { head: "GPUs", number: true, cell: (j) => figure(j.gpus) }, { head: "Domains", number: true, cell: (j) => figure(j.domains_used) }, { head: "Would do", number: true, cell: (j) => figure(j.domains_min) }, { head: "Exposed GPU-hours", number: true, cell: (j) => hours(j.exposed_gpu_hours) },
        ], r.worst) : null),
        h("section", { class: "panel" }, h("h2", null, "What another policy would have done"), h("p", null, "Play the jobs of this time again, under every policy:"), copyable(`spillway simulate --from-history --since ${24 * back[2]}h`, "the command"), h("p", { class: "muted" }, "It asks this service for its runs, places them anew in racks like yours, and shows waits and lost GPU-hours side by side.")),
        h("section", { class: "panel" }, h("h2", null, "Basis of the figures"), h("ul", { class: "why muted" }, r.basis.map((b) => h("li", null, b))), h("p", { class: "muted" }, "To print or send: ", h("code", null, `spillway report --since ${back[0]} -o html`))));
      return r;
    },
  };
}
