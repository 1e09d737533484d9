// Domain: one rack's nodes and jobs, now or at a moment: who is in it, and what breaks when it goes to maintenance.
import { box, h, put, table } from "./dom.js";
import { get } from "./api.js";
import { occupancy } from "./occupancy.js";
import { badge, clock, figure, jobHref, plural, when } from "./words.js";

export function open(root, route, shell) {
  const id = route.name;
  shell.title(id);
  const cluster = route.query.get("cluster") ?? "";
  let at = route.query.get("at") ?? "";
  const input = h("input", { type: "datetime-local", step: "1", value: at.slice(0, 19), onchange: () => {
    at = input.value ? `${input.value.length === 16 ? `${input.value}:00` : input.value}Z` : "";
    shell.replace({ cluster, at, ...was.times() });
    shell.again();
  } });
  const was = occupancy(route, () => {
    shell.replace({ cluster, at, ...was.times() });
    shell.again();
  });

  // What a reader types into stays in its place while the rest is drawn anew.
  const heading = h("h1", null, id);
  const now = h("div", null, box("loading", "Reading the rack…"));
  const nodes = h("section", { class: "panel" }, h("h2", null, "Nodes"));
  put(root, heading, h("div", { class: "controls" }, h("label", { class: "field" }, h("span", null, "At (UTC), empty = now"), input)), now, was.section, nodes);

  return {
    get every() { return at ? 0 : 10000; },
    async refresh() {
      const d = await get(`/v1/domains/${encodeURIComponent(id)}`, { cluster, at });
      const c = d.capacity;
      const reading = was.ask(c?.domain ?? id, c?.cluster ?? cluster);
      const name = c?.label ?? id;
      shell.title(name);
      const real = d.jobs.filter((j) => !j.probe);
      const across = real.filter((j) => j.domains_used > 1).length;
      put(heading, name, name !== id ? h("span", { class: "name" }, id) : null);
      put(now,
        h("p", { class: "summary" }, at ? `At ${clock(at)}: ` : "", c ? [`${plural(c.gpus_usable, "usable GPU")} of ${c.gpus}: ${c.gpus_held} held, ${c.gpus_free} free`, c.gpus_probe ? `, ${c.gpus_probe} of the free by probe jobs` : "", `. ${plural(c.nodes_free, "node")} of ${c.nodes} wholly free.`] : h("span", { class: "unknown" }, "Its capacity is not known."),
          c?.gpus_basis === "assumed" ? " GPUs per node are assumed." : ""),
        h("p", { class: "summary" }, h("strong", null, real.length === 0 ? "No job would be hit by taking it down." : `Taking it down would hit ${plural(real.length, "job")}`), real.length ? `, of which ${across} also ${across === 1 ? "sits" : "sit"} in other racks.` : ""),
        h("section", { class: "panel" }, h("h2", null, "Jobs here"), d.jobs.length === 0 ? box("empty", "No job holds GPUs here.", "That is what the sources told; it is not a gap.") :
          table(plural(d.jobs.length, "job"), [
            { head: "Job", cell: (j) => h("a", { href: jobHref({ ...j, cluster: c?.cluster ?? cluster }) }, j.job_id) }, { head: "Name", cell: (j) => j.name },
            { head: "Verdict", cell: (j) => (j.probe ? "probe job" : badge(j.outcome)) }, { head: "GPUs here", number: true, cell: (j) => figure(j.gpus_here) }, { head: "GPUs in all", number: true, cell: (j) => figure(j.gpus) },
            { head: "Domains", number: true, cell: (j) => figure(j.domains_used) }, { head: "User", cell: (j) => `${j.user} (${j.account || "account not told"})` }, { head: "Began", cell: (j) => when(j.from) },
            { head: "Ends, by its limit", cell: (j) => when(j.expected_end, "no limit known") },
          ], d.jobs)));
      put(nodes, h("h2", null, "Nodes"), d.nodes.length === 0 ? box("unknown", "No node of it was known then.") : table(plural(d.nodes.length, "node"), [
          { head: "Node", cell: (n) => n.node },
          { head: "State", cell: (n) => (n.state === null ? h("span", { class: "unknown" }, "no node record") : [n.state, n.reason].filter(Boolean).join(": ") || h("span", { class: "muted" }, "not told")) },
          { head: "Schedulable", cell: (n) => (n.schedulable === null ? h("span", { class: "unknown" }, "unknown") : n.schedulable ? "yes" : "✗ no") },
          { head: "GPUs usable", number: true, cell: (n) => [figure(n.gpus_usable), " of ", figure(n.gpus_present)] },
          { head: "Partition", cell: (n) => (n.partition.startsWith(`${id}.`) ? h("span", { title: n.partition }, `clique ${n.partition.slice(id.length + 1)}`) : n.partition || h("span", { class: "muted" }, "not told")) }, { head: "Told by", cell: (n) => n.source }, { head: "Since", cell: (n) => when(n.since) },
        ], d.nodes));
      await reading;
      return d;
    },
  };
}
