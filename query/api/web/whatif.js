// What if: some racks set aside, or bought: what fits before and after.
import { box, h, put, table } from "./dom.js";
import { Refusal, post } from "./api.js";
import { clock, domainHref, jobHref, plural } from "./words.js";

// slotsIn is how many jobs of n nodes fit into racks that are empty and whole, each in one rack.
export const slotsIn = (racks, n) => racks.reduce((sum, d) => sum + Math.floor(d.nodes / n), 0);

// whatIf makes the panel. domains() gives the capacity that the racks to set aside are chosen by; remember keeps what was
// asked in the address.
export function whatIf(domains, route, remember) {
  const number = (name, most) => Math.max(0, Math.min(most, Number.parseInt(route.query.get(name) ?? "0", 10) || 0));
  const input = (value, most) => h("input", { type: "number", min: "0", max: String(most), step: "1", inputmode: "numeric", value: String(value), required: true });
  const reserve = input(number("reserve", 1000), 1000);
  const buy = input(number("buy", 10000), 10000);
  const out = h("div", { role: "region", "aria-label": "What would change", "aria-live": "polite" }, h("p", { class: "muted" }, "Racks that hold the fewest GPUs are set aside first: they are the cheapest to empty."));
  const form = h("form", { class: "controls", onsubmit: (e) => { e.preventDefault(); if (!form.reportValidity()) return; remember(); ask(); } },
    h("label", { class: "field" }, h("span", null, "Racks set aside"), reserve), h("label", { class: "field" }, h("span", null, "Racks bought"), buy),
    h("button", { type: "submit", class: "primary" }, "What changes?"));
  const panel = h("section", { class: "panel" }, h("h2", null, "If racks were set aside or bought"), form, out);

  async function ask() {
    const all = domains();
    const clusters = [...new Set(all.map((d) => d.cluster))];
    if (clusters.length !== 1) return put(out, box("unknown", "Which cluster?", "This page asks for one cluster only: POST /v1/whatif takes its name."));
    const taken = [...all].sort((a, b) => a.gpus_held - b.gpus_held || b.nodes_usable - a.nodes_usable || (a.domain < b.domain ? -1 : 1)).slice(0, Number(reserve.value));
    put(out, box("loading", "Working it out…"));
    try {
      draw(await post("/v1/whatif", { cluster: clusters[0], drain_domains: taken.map((d) => d.domain) }), taken, all);
    } catch (error) {
      if (!(error instanceof Refusal)) return put(out, box("wrong", "Spillway does not answer.", "See that it still runs, then ask again."));
      put(out, box("unknown", "It cannot be worked out here.", `${error.message}.`));
    }
    return undefined;
  }

  // A bought rack is empty and like the largest there is: it adds as many slots of a size as it holds.
  function draw(c, taken, all) {
    const bought = Number(buy.value);
    const size = Math.max(...all.map((d) => d.nodes));
    const slots = (u, n, more) => u.slots[n - 1] + (n <= size ? more * Math.floor(size / n) : 0);
    const sizes = [1, 2, 4, 8, 16, 18].filter((n) => n <= c.before.slots.length);
    const jobs = c.affects.length;
    put(out,
      h("p", null, taken.length ? h("strong", null, jobs === 0 ? `${plural(taken.length, "rack")} could be set aside at once: no job is in them. ` : `${plural(jobs, "job")} would have to end first${c.drained_by ? `, the last by ${clock(c.drained_by)} by the time limits` : "; when, no time limit says"}. `) : "",
        taken.length ? ["Set aside: ", taken.slice(0, 12).map((d, i) => [i ? ", " : "", h("a", { href: domainHref(d.cluster, d.domain) }, d.label ?? d.domain)]), taken.length > 12 ? ` and ${taken.length - 12} more` : "", "."] : "No rack is set aside."),
      jobs ? h("details", null, h("summary", null, `The ${plural(jobs, "job")}`), h("p", null, c.affects.slice(0, 100).map((j, i) => [i ? ", " : "", h("a", { href: jobHref({ job_id: j, cluster: c.cluster }) }, j)]), jobs > 100 ? ` and ${jobs - 100} more` : "")) : null,
      table("Jobs that fit, each in one domain: now, then for everybody, and in what is set aside", [
        { head: "GPUs", number: true, cell: (n) => n * c.before.gpus_per_node }, { head: "Now", number: true, cell: (n) => c.before.slots[n - 1] },
        { head: "Then", number: true, cell: (n) => slots(c.after, n, bought) },
        { head: "Set aside", number: true, cell: (n) => slotsIn(taken, n) },
      ], sizes),
      h("p", { class: "muted" }, `Now, by what is free at this moment; what is set aside counts as empty and whole${bought ? `, and a bought rack as empty with ${plural(size, "node")}` : ""}. Over a week of your own jobs: `, h("code", null, "spillway simulate --from-history"), "."));
  }
  return { panel, ask, asked: () => ({ reserve: Number(reserve.value) || "", buy: Number(buy.value) || "" }), wanted: route.query.has("reserve") || route.query.has("buy") };
}
