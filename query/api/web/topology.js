// Topology: how much of the fleet has a known NVLink domain, from which source, and what disagrees.
import { box, h, put, table } from "./dom.js";
import { get } from "./api.js";
import { domainHref, figure, plural, when } from "./words.js";

const reasons = {
  no_source: "no source names its domain", in_progress: "its fabric is still coming up", unhealthy: "its fabric is not healthy",
  conflict: "its own GPUs or two sources contradict each other", removed: "its source took it out",
};

export function open(root, route, shell) {
  shell.title("Topology");
  const cluster = route.query.get("cluster") ?? "";
  const unfolded = new Map(); // what the reader opened or closed stays so when the facts are read again
  put(root, h("h1", null, "Topology health"), box("loading", "Reading the topology…"));
  return {
    every: 15000,
    async refresh() {
      const [t, views] = await Promise.all([get("/v1/topology/health", { cluster }), get("/v1/views", { cluster })]);
      const nodes = t.coverage.reduce((n, c) => n + c.nodes, 0) + t.missing.length;
      const known = t.coverage.reduce((n, c) => n + c.known, 0);
      const share = nodes ? (100 * known) / nodes : null;
      put(root, h("h1", null, "Topology health"),
        share === null ? box("unknown", "No node is known yet.", "No membership has arrived: see the sources below.") :
          h("p", { class: "big" }, h("strong", null, `${share === 100 ? "100" : share.toFixed(share > 99 ? 2 : 1)} %`), ` of ${plural(nodes, "node")} have a known NVLink domain`),
        nodes > known ? box("unknown", `${plural(nodes - known, "node")} without a known domain.`, "Jobs on them are judged unknown: neither a spill nor fine.") : null,
        h("section", { class: "panel" }, h("h2", null, "Coverage"), t.coverage.length === 0 ? box("empty", "No membership.") : table("Nodes by what decided their domain", [
          { head: "Cluster", cell: (c) => c.cluster }, { head: "Decided by", cell: (c) => c.source || h("span", { class: "unknown" }, "nobody") },
          { head: "Nodes", number: true, cell: (c) => figure(c.nodes) }, { head: "Known", number: true, cell: (c) => figure(c.known) }, { head: "Domains", number: true, cell: (c) => figure(c.domains) },
          { head: "Why unknown", cell: (c) => (c.reason ? h("span", { class: "unknown" }, reasons[c.reason] ?? c.reason) : "all known") }, { head: "Last change", cell: (c) => when(c.changed_at) },
        ], t.coverage)),
        h("section", { class: "panel" }, h("h2", null, "Conflicts"), t.conflicts.length === 0 ? box("empty", "No conflict.", "No two sources disagree on any node.") : table(plural(t.conflicts.length, "conflict"), [
          { head: "Cluster", cell: (c) => c.cluster }, { head: "Node", cell: (c) => c.node }, { head: "Believed", cell: (c) => `${c.source_a}: ${c.domain_a || "unknown"}` },
          { head: "Contradicted by", cell: (c) => `${c.source_b}: ${c.domain_b || "unknown"}` }, { head: "Detail", cell: (c) => c.detail }, { head: "Since", cell: (c) => when(c.since) },
        ], t.conflicts)),
        t.faults.length ? h("section", { class: "panel" }, h("h2", null, "Faults of the NVLink fabric"), h("p", null, "What the driver says of these GPUs. Jobs on them may be slow or fall back to the scale-out network."), table(plural(t.faults.length, "GPU"), [
          { head: "Cluster", cell: (f) => f.cluster }, { head: "Node", cell: (f) => f.node }, { head: "GPU", number: true, cell: (f) => figure(f.gpu) },
          { head: "Fault", cell: (f) => h("span", { class: "state wrong" }, `✗ ${f.faults.join(", ").replaceAll("_", " ")}`) }, { head: "Said by", cell: (f) => f.source }, { head: "Told", cell: (f) => when(f.observed_at) },
        ], t.faults)) : null,
        h("section", { class: "panel" }, h("h2", null, "Scheduler's view and ours"), notCompared(views.not_compared), differences(views, unfolded)),
        t.missing.length ? h("section", { class: "panel" }, h("h2", null, "Nodes without any membership record"), h("p", null, "The scheduler knows them, the topology does not. Check the topology collector."), h("p", null, t.missing.slice(0, 50).map((n) => n.node).join(", "), t.missing.length > 50 ? ` and ${t.missing.length - 50} more` : "")) : null,
        h("section", { class: "panel" }, h("h2", null, "Sources"), sourceTable(t.sources)));
      return t;
    },
  };
}

const differ = {
  domain: ["Another domain", "Its topology file or label puts these nodes elsewhere than the hardware does: it packs jobs by a picture that is wrong."],
  planned: ["Kept for a job that waits", "Free now, and planned for the start of a job: a slot counted here may be gone when you come."],
  kept_out: ["Given to nobody", "Held by no job, yet drained, down or set aside: no slot counts them."],
  not_in_scheduler: ["Unknown to the scheduler", "The topology knows these nodes and the scheduler does not: nothing runs there."],
  not_in_topology: ["Unknown to the topology", "The scheduler gives these nodes out, and their NVLink domain is not known: jobs there cannot be judged."],
};

// notCompared names the clusters where nothing is known of the scheduler's domains.
function notCompared(clusters) {
  if (clusters.length === 0) return null;
  return box("unknown", `Domains are not compared in ${clusters.slice(0, 10).join(", ")}${clusters.length > 10 ? ` and ${clusters.length - 10} more` : ""}.`,
    "The scheduler tells no topology there: neither Slurm's, nor topograph's, nor node labels. Read it with the topology collector.");
}

// differences are the nodes that scheduler and Spillway see in another way, kind by kind.
function differences(views, unfolded) {
  const list = views.differences;
  if (list.length === 0) return views.not_compared.length
    ? box("empty", "No difference in what was compared.", "No node is kept out, planned for a job that waits, or known to one of them only.")
    : box("empty", "Both see the same.", "No node is placed elsewhere, kept out, planned for a job that waits, or known to one of them only.");
  return Object.entries(differ).filter(([k]) => list.some((d) => d.kind === k)).map(([k, [word, long]]) => {
    const some = list.filter((d) => d.kind === k).sort((a, b) => (a.label ?? a.domain).localeCompare(b.label ?? b.domain, "en", { numeric: true }));
    return h("details", { open: unfolded.get(k) ?? some.length <= 8, ontoggle: (e) => unfolded.set(k, e.target.open) }, h("summary", null, h("b", null, word), `: ${plural(some.length, "node")}`), h("p", { class: "muted" }, long), table(`${word}: ${plural(some.length, "node")}`, [
      { head: "Node", cell: (d) => d.node }, { head: "Rack", cell: (d) => (d.domain ? h("a", { href: domainHref(d.cluster, d.domain) }, d.label ?? d.domain) : h("span", { class: "unknown" }, "not known")) },
      { head: "The scheduler", cell: (d) => d.scheduler }, { head: "Spillway", cell: (d) => d.spillway }, { head: "Since", cell: (d) => (d.since ? when(d.since) : h("span", { class: "muted" }, "not told")) }, { head: "Cluster", cell: (d) => d.cluster },
    ], some.slice(0, 200)), some.length > 200 ? h("p", { class: "muted" }, `The first 200 of ${some.length}; GET /v1/views has all.`) : null);
  });
}

// sourceTable says of each collector whether it is heard, in words.
export function sourceTable(sources) {
  if (sources.length === 0) return box("unknown", "No collector has reported in the last day.", "Check that `spillway collect` runs and reaches Kafka.");
  return table(plural(sources.length, "source"), [
    { head: "Source", cell: (c) => c.source }, { head: "Cluster", cell: (c) => c.cluster },
    { head: "State", cell: (c) => (c.good_at === null ? h("span", { class: "state wrong" }, "✗ never read in full") : c.problem ? h("span", { class: "state wrong" }, "✗ failing") : c.overdue ? h("span", { class: "state stale" }, "◷ overdue") : h("span", { class: "state ok" }, "✓ read in full")) },
    { head: "Last full read", cell: (c) => when(c.good_at, "never") }, { head: "Problem", cell: (c) => c.problem ?? h("span", { class: "muted" }, "none") },
  ], sources);
}
