// Job: what was judged, why, where it ran, what it asked for and got, what to submit next time. One screen.
import { compareCard, comparedIn } from "./compare.js";
import { box, copyable, h, put, table, withCode } from "./dom.js";
import { kinds } from "./exceptions.js";
import { Refusal, get } from "./api.js";
import { rackPicture } from "./rackpicture.js";
import { trafficCard } from "./traffic.js";
import { badge, clock, domainHref, figure, outcomeOf, plural, shardName, span, unknown, when } from "./words.js";

export function open(root, route, shell) {
  const id = route.name;
  shell.title(`Job ${id}`);
  const cluster = route.query.get("cluster") ?? "";
  const wanted = route.query.get("attempt");
  let mapFor = ""; // the placement whose map is held
  let map = null;
  let comparedFor = ""; // what the run was when it was compared: earlier runs do not change, so it is asked again only if it did
  let comparison = null;
  put(root, h("h1", null, `Job ${id}`), box("loading", "Reading the job…"));

  async function placeMap(job, placement) {
    const key = placement ? placement.from : "";
    if (key === mapFor) return map;
    map = null;
    try {
      if (placement?.verdict?.shape.length) map = await get("/v1/map", { cluster: job.cluster, at: placement.from });
    } catch (error) {
      if (!(error instanceof Refusal)) throw error; // the picture is then drawn from counts
    }
    mapFor = key;
    return map;
  }

  async function compareOf(a, placement, ask) {
    const key = [a.attempt, a.state, a.end, placement?.from, JSON.stringify(a.verdict?.shape ?? null)].join(" ");
    if (comparison && key === comparedFor) return comparison;
    comparison = await ask();
    comparedFor = key;
    return comparison;
  }

  return {
    every: 10000,
    async refresh() {
      const path = `/v1/jobs/${encodeURIComponent(id)}`;
      const [job, why] = await Promise.all([get(path, { cluster }), get(`${path}/explain`, { cluster, attempt: wanted ?? "" })]);
      const a = job.attempts.find((x) => x.attempt === why.attempt) ?? job.attempts[0];
      const placement = a.placements[a.placements.length - 1];
      const of = (what) => asideOf(() => get(`${path}/${what}`, { cluster: job.cluster, attempt: a.attempt }));
      const [held, traffic, compared, odd] = await Promise.all([placeMap(job, placement), of("traffic"), compareOf(a, placement, () => of("compare")), asideOf(() => get("/v1/exceptions", { cluster: job.cluster }))]);
      draw(job, a, why, placement, held, traffic, compared, odd?.exceptions.filter((x) => x.job_id === job.job_id && x.attempt === a.attempt) ?? []);
      return job;
    },
  };

  // What stands beside the verdict may be refused, as where nobody collects counters: that is said, and is no failure.
  async function asideOf(ask) {
    try {
      return await ask();
    } catch (error) {
      if (error instanceof Refusal) return null;
      throw error;
    }
  }

  function draw(job, a, why, placement, held, traffic, compared, odd) {
    const v = a.verdict;
    // The explanation is cut up by what its lines are for; each keeps its words.
    const lines = why.lines.filter((l, i) => i > 0 && !l.startsWith("Next time:") && !l.startsWith("Traffic"));
    put(root,
      h("h1", null, `Job ${job.job_id}`, a.name ? h("span", { class: "name" }, a.name) : null),
      job.attempts.length > 1 ? h("p", { class: "attempts" }, "Attempt: ", job.attempts.map((x) => [h("a", {
        href: `/jobs/${encodeURIComponent(id)}?cluster=${encodeURIComponent(job.cluster)}&attempt=${x.attempt}`, "aria-current": x.attempt === a.attempt ? "true" : null,
      }, `${x.attempt} (${x.state})`), " "])) : null,
      h("section", { class: `verdict ${outcomeOf(v?.outcome).kind}`, "aria-label": "Verdict" },
        h("p", { class: "verdict-word" }, badge(v?.outcome, v?.cause), a.probe ? " a probe job" : ""),
        h("p", { class: "verdict-line" }, withCode(why.lines[0])), compared?.placement ? h("p", null, comparedIn(compared)) : null, next(why, a, v)),
      odd.map((x) => box(x.severity === "warning" ? "wrong" : "stale", `${kinds[x.kind]}${x.detail ? ` (${x.detail})` : ""}, since ${clock(x.since)}.`, x.meaning)),
      h("div", { class: "sheet" },
        h("div", null,
          h("section", { class: "panel" }, h("h2", null, "Where it ran"),
            v && placement ? rackPicture(placement, v, held, job.job_id, a.attempt) : box("empty", a.start ? "It holds no GPU that is known." : "It has not started.", a.pending_reason ? `The scheduler says: ${a.pending_reason}.` : ""),
            v?.unknown_nodes ? box("unknown", `The domain of ${plural(v.unknown_nodes, "node")} is not known.`, "They are not in the picture. ", h("a", { href: "/topology" }, "Topology health"), " says why.") : null),
          h("div", { class: "pair" },
            h("section", { class: "panel" }, h("h2", null, "Why"), h("ul", { class: "why" }, lines.map((l) => h("li", null, withCode(l))))),
            h("section", { class: "panel" }, h("h2", null, "Asked for and got"), asked(a, v))),
          h("section", { class: "panel" }, h("h2", null, "Against earlier runs"), compared ? compareCard(compared) : box("unknown", "No comparison could be made.")),
          a.placements.length > 0 ? h("section", { class: "panel" }, h("h2", null, "Placements and nodes"), placements(a, job)) : null),
        h("div", null,
          h("section", { class: "panel" }, h("h2", null, "Traffic"), trafficCard(v?.traffic ?? null, traffic)),
          h("section", { class: "panel" }, h("h2", null, "Timeline"), timeline(a)),
          h("section", { class: "panel" }, h("h2", null, "Who"), h("dl", { class: "facts" },
            row("User", a.user), row("Account", a.account), row("Queue", a.queue), row("QOS", a.qos), row("Class", a.service_class),
            row("Cluster", job.cluster), row("State", a.state_raw ? `${a.state} (${a.state_raw})` : a.state), row("Told by", a.sources.join(", ")))))));
  }

  function row(name, value) {
    return [h("dt", null, name), h("dd", null, value || h("span", { class: "muted" }, "not told"))];
  }

  // next is what to submit next time, at the top: it is what the reader came for.
  function next(why, a, v) {
    const fit = h("a", { href: `/advice?${new URLSearchParams({ gpus: a.requested_gpus ?? v?.gpus ?? "", class: a.service_class })}` }, "Where would it fit now?");
    if (!why.advice) return h("p", { class: "next" }, !v ? "" : v.outcome === "unknown" ? "Nothing to say of the next time while its placement is not known. " : "Next time: the same again, there is nothing to change. ", fit);
    const flags = why.advice.match(/^sbatch (\S+) ?(.*)$/);
    if (!flags) return h("p", { class: "next" }, h("b", null, "Next time: "), why.advice, " ", fit);
    return h("div", { class: "next" }, h("b", null, "Submit next time: "), copyable(`sbatch ${flags[1]} --nodes=${a.requested_nodes ?? v.nodes}`, "the sbatch line"), h("span", null, `It ${flags[2]} `, fit));
  }

  function asked(a, v) {
    const met = v?.intent_met;
    return h("table", { class: "pairs" }, h("thead", null, h("tr", null, h("td"), h("th", { scope: "col" }, "Asked"), h("th", { scope: "col" }, "Got"))), h("tbody", null,
      h("tr", null, h("th", { scope: "row" }, "GPUs"), h("td", null, figure(a.requested_gpus)), h("td", null, figure(v?.gpus ?? a.gpus))),
      h("tr", null, h("th", { scope: "row" }, "Nodes"), h("td", null, figure(a.requested_nodes)), h("td", null, v ? figure(v.nodes) : unknown())),
      h("tr", null, h("th", { scope: "row" }, "Domains"), h("td", null, v ? [figure(v.domains_min), " would do"] : unknown()), h("td", null, v ? [v.unknown_nodes && v.domains_used !== null ? "at least " : "", figure(v.domains_used)] : unknown())),
      h("tr", null, h("th", { scope: "row" }, "Topology"), h("td", null, v ? { none: "nothing asked", unknown: unknown() }[v.intent] ?? v.intent : unknown()),
        h("td", null, !v || v.intent === "none" ? "nothing to meet" : met === null ? h("span", { class: "unknown" }, "cannot say") : met ? "✓ met" : "✗ not met")),
      h("tr", null, h("th", { scope: "row" }, "Smallest part"), h("td", { class: "muted" }, "not asked"), h("td", null, v ? [figure(v.smallest_shard), " GPUs", v.balance === null ? "" : `, balance ${v.balance.toFixed(2)}`] : unknown()))));
  }

  function timeline(a) {
    const steps = [["Submitted", a.submit], ["Eligible", a.eligible], ["Started", a.start]];
    for (const p of a.placements.slice(1)) steps.push([`Placement ${p.seq}: nodes changed`, p.from]);
    if (a.end) steps.push([a.end_earliest ? "Ended, at the latest" : "Ended", a.end]);
    else if (a.expected_end) steps.push(["Ends, by its limit", a.expected_end]);
    const known = steps.filter(([, t]) => t);
    const list = h("ol", { class: "timeline" }, known.map(([what, t], i) => h("li", null, h("b", null, what), " ", h("time", { datetime: t }, clock(t)),
      i > 0 ? h("span", { class: "muted" }, ` after ${span((Date.parse(t) - Date.parse(known[i - 1][1])) / 1000)}`) : "")));
    return [list, a.end ? null : h("p", { class: "muted" }, a.start ? "It runs." : "It waits.", " Last heard of ", when(a.observed_last), ".")];
  }

  function placements(a, job) {
    return a.placements.map((p) => [
      h("p", null, h("b", null, `Placement ${p.seq}`), ` from ${clock(p.from)} to ${p.to ? clock(p.to) : "now"}: `, figure(p.gpus), ` GPUs on ${plural(p.nodes.length, "node")} `,
        p.gpus_basis === "exact" ? "(told per node). " : p.gpus_basis === "even" ? "(total split evenly). " : "(how many per node is not known). ",
        p.verdict ? badge(p.verdict.outcome, p.verdict.cause) : "", " ",
        p.verdict?.shape.map((sh, i) => [i ? ", " : "", h("a", { href: `${domainHref(job.cluster, sh.domain)}&at=${encodeURIComponent(p.from)}` }, shardName(sh))])),
      h("details", null, h("summary", null, `Nodes (${p.nodes.length})`), table(`Nodes of placement ${p.seq}`, [
        { head: "Node", cell: (n) => n.node }, { head: "GPUs", number: true, cell: (n) => figure(n.gpus) },
        { head: "GPU indices", cell: (n) => (n.gpu_index.length ? n.gpu_index.join(", ") : unknown()) },
      ], p.nodes))]);
  }
}
