// Advice: where a job would best go, asked of POST /v1/advice.
import { box, copyable, h, put, table } from "./dom.js";
import { Refusal, get, post } from "./api.js";
import { clock, figure, plural, span, unknown } from "./words.js";

const part = (n, of) => (of === 0 ? "-" : `${figure(n)} (${Math.round((100 * n) / of)} %)`);

// slowdown is [low, high] against the best shape.
function slowdown(range) {
  if (!range) return unknown();
  const [low, high] = range.map((n) => n.toFixed(2));
  return low === high ? (low === "1.00" ? "none" : `${low}x`) : `${low} to ${high}x`;
}

// late is when a candidate starts if the jobs that it waits for take as long as their 90th percentile.
function late(c) {
  return c.start_p90 ? `, in ${span(c.wait_s + (Date.parse(c.start_p90) - Date.parse(c.start)) / 1000)} at the 90th percentile` : "";
}

export function open(root, route, shell) {
  shell.title("Advice");
  const q = route.query;
  let names = new Map(); // what people call each domain
  const out = h("div", { role: "region", "aria-label": "Advice", "aria-live": "polite" });
  const graded = h("section", { class: "panel" }, h("h2", null, "Did advice help?"), box("loading", "Reading the ledger…"));
  const field = (label, name, attrs, hint) => h("label", { class: "field" }, h("span", null, label), h("input", { name, autocomplete: "off", value: q.get(name) ?? "", ...attrs }), hint ? h("small", null, hint) : null);
  const whole = { type: "number", min: "0", step: "1", inputmode: "numeric" };
  const form = h("form", { class: "panel form", onsubmit: ask },
    field("GPUs", "gpus", { ...whole, min: "1", required: true, value: q.get("gpus") || "64" }),
    h("label", { class: "field" }, h("span", null, "Must it stay in one NVLink domain?"), h("select", { name: "mode" },
      [["", "as its class says"], ["required", "yes, it waits for one (required)"], ["preferred", "rather (preferred)"], ["unconstrained", "no matter (unconstrained)"]].map(([v, t]) => h("option", { value: v, selected: v === (q.get("mode") ?? "") }, t)))),
    field("Service class", "class", {}, "as configured; empty = none"),
    field("Run time, hours", "hours", { type: "number", min: "0", step: "any", inputmode: "decimal" }),
    field("Longest wait, minutes", "wait", whole, "empty = no limit"),
    field("Segment, nodes", "segment_nodes", whole, "nodes that must stay together; empty = all"),
    field("Cluster", "cluster", { spellcheck: "false" }, "empty = the only one"),
    field("Not these nodes", "exclude_nodes", { spellcheck: "false" }, "names with commas between"),
    h("label", { class: "check" }, h("input", { type: "checkbox", name: "exclusive_domain" }), " Nobody else in its domains"),
    h("label", { class: "check" }, h("input", { type: "checkbox", name: "preempt" }), " Say who would have to make room"),
    h("button", { type: "submit", class: "primary" }, "Ask"));
  put(root, h("h1", null, "Advice"), h("p", { class: "summary" }, "Where a job would go best now, what it would cost elsewhere, and what to submit. Advice is no reservation."), h("div", { class: "split" }, form, h("div", { class: "grow" }, out, graded)));

  async function ask(event) {
    event?.preventDefault();
    if (!form.reportValidity()) return;
    const f = new FormData(form);
    const number = (name) => (f.get(name) ? Number(f.get(name)) : undefined);
    const request = {
      gpus: number("gpus"), cluster: f.get("cluster").trim() || undefined, mode: f.get("mode") || undefined, class: f.get("class").trim() || undefined, segment_nodes: number("segment_nodes"),
      duration_s: f.get("hours") ? Math.round(Number(f.get("hours")) * 3600) : undefined, duration_basis: f.get("hours") ? "limit" : undefined,
      max_wait_s: f.get("wait") ? Number(f.get("wait")) * 60 : undefined,
      exclude_nodes: f.get("exclude_nodes").split(/[\s,]+/).filter(Boolean), exclusive_domain: f.has("exclusive_domain") || undefined, preempt: f.has("preempt") ? "plan" : undefined,
    };
    if (request.exclude_nodes.length === 0) delete request.exclude_nodes;
    shell.replace(Object.fromEntries([...f].filter(([k]) => ["gpus", "cluster", "mode", "class", "segment_nodes", "hours", "wait"].includes(k))));
    put(out, box("loading", "Asking the advisor…"));
    try {
      draw(await post("/v1/advice", request));
    } catch (error) {
      if (!(error instanceof Refusal)) return put(out, box("wrong", "Spillway does not answer.", "See that it still runs, then ask again."));
      refused(error, request.gpus);
    }
    return undefined;
  }

  function refused(error, gpus) {
    const { code } = error.problem;
    if (code === "not_ready" || (!code && [404, 405, 501, 503].includes(error.status))) {
      return put(out, box("unknown", "The advisor is not available here.", code || error.status === 503 ? `${error.problem.detail}. ${error.problem.remedy ?? ""}` : "This Spillway was started without it.", " Meanwhile ",
        h("a", { href: `/slots?gpus=${gpus}` }, `slots of ${plural(gpus, "GPU")}`), " shows which domain has room."));
    }
    const p = error.problem;
    const errors = (p.errors ?? []).map((e) => `${e.location ?? ""} ${e.message ?? ""}`.trim()).filter(Boolean);
    put(out, box("wrong", "No advice", `${sentence(p.detail ?? error.message)}. ${sentence(p.remedy)}`), errors.length ? h("ul", null, errors.map((e) => h("li", null, e))) : null,
      p.legal?.length ? h("p", null, `These would be answered: ${p.legal.join(", ")}.`) : null,
      p.counts?.length ? h("ul", null, p.counts.map((c) => h("li", null, `${c.reason}: ${plural(c.nodes, "node")}`))) : null);
    return undefined;
  }

  const places = (c) => c.domains.map((d) => `${names.get(d.id) ?? d.id} ${d.nodes}`).join(" + ");

  // inWords says the recommendation with the place and time that its rank stands for.
  function inWords(a) {
    const rank = a.recommendation.match(/rank (\d+)/);
    const c = rank && a.candidates.find((x) => x.rank === Number(rank[1]));
    if (!c) return a.recommendation || "None";
    const where = `${c.domains.length === 1 ? "" : "split: "}nodes by domain ${places(c)}`;
    return c.start === "now" ? `Start now, ${where}` : `Wait about ${span(c.wait_s)}, then ${where}`;
  }

  const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");

  function draw(a) {
    const none = a.candidates.length === 0;
    put(out,
      h("section", { class: "panel" }, h("h2", null, none ? "No opinion" : "Recommendation"),
        h("p", { class: "verdict-line" }, inWords(a)), h("ul", { class: "why" }, (a.why ?? []).map((w) => h("li", null, sentence(w)))),
        a.not_now ? box("wrong", "Not now", `${sentence(a.not_now.detail)}. ${sentence(a.not_now.remedy)}.`) : null,
        a.snapshot?.stale ? box("stale", "Stale", "This advice rests on an old picture of the cluster.") : null,
        a.snapshot && a.snapshot.coverage < 1 ? h("p", { class: "muted" }, `The domain of ${Math.round((1 - a.snapshot.coverage) * 100)} % of the nodes is not known; they were not considered.`) : null),
      a.slurm?.length ? h("section", { class: "panel" }, h("h2", null, "Slurm"), copyable(`sbatch ${a.slurm.join(" ")}`, "the sbatch line")) : null,
      a.kueue && Object.keys(a.kueue).length ? h("section", { class: "panel" }, h("h2", null, "Kueue"), copyable(Object.entries(a.kueue).map(([k, v]) => `${k}: ${JSON.stringify(v)}`).join("\n"), "the annotations")) : null,
      none ? null : table("Candidates, best first", [
        { head: "Rank", number: true, cell: (c) => c.rank }, { head: "Start", cell: (c) => (c.start === "now" ? "now" : `in ${span(c.wait_s)} (by ${(c.start_basis || "a basis not told").replaceAll("_", " ")})${late(c)}`) },
        { head: "Nodes by domain", cell: (c) => places(c) },
        { head: "GB/s a GPU", number: true, cell: (c) => h("span", { title: c.predicted.bw_basis }, figure(c.predicted.bw_GBps)) },
        { head: "Slowdown", cell: (c) => slowdown(c.predicted.slowdown) }, { head: "Basis", cell: (c) => c.predicted.basis },
        { head: "Lost GPU-hours", cell: (c) => (c.lost_gpu_hours ? c.lost_gpu_hours.map((n) => n.toFixed(0)).join(" to ") : unknown()) },
        { head: "Slots left", cell: (c) => (c.frag ? `${c.frag.slots_after} of ${c.frag.slots_before}` : unknown()) },
      ], a.candidates),
      a.make_room?.moves?.length ? h("section", { class: "panel" }, h("h2", null, "Who would have to make room"), h("ul", null, a.make_room.moves.map((m) => h("li", null, `job ${m.job}: `, figure(m.nodes), ` nodes${m.from ? ` from ${m.from}` : ""}${m.to ? ` to ${m.to}` : ""}${m.not_before ? `, not before ${clock(m.not_before)}` : ""}`)))) : null,
      h("p", { class: "muted" }, `Good for ${a.expires_in_s ?? "?"} s. Two askers may be told the same place.`));
  }

  // grades says what became of the answers of the last week.
  async function grades() {
    const heading = h("h2", null, "Did advice help?");
    try {
      const g = await get("/v1/advice/grade", { since: new Date(Date.now() - 7 * 86400e3).toISOString() });
      if (g.grades.length === 0) return put(graded, heading, box("empty", "No advice was given in the last week.", "Nobody asked POST /v1/advice."));
      return put(graded, heading, g.grades.map((x) => [
        h("p", null, `${plural(x.answered, "answer")} with advice in the last week`, x.refused ? `, ${figure(x.refused)} without` : "", g.grades.length > 1 ? ` for ${x.cluster}` : "", "."),
        h("dl", { class: "facts" }, x.started === 0 ? [h("dt", null, "Their jobs"), h("dd", { class: "muted" }, "none has started yet, or the caller did not say which it was")] : [
          h("dt", null, "Their jobs started"), h("dd", null, figure(x.started)), h("dt", null, "Placed as advised"), h("dd", null, part(x.followed, x.started)),
          h("dt", null, "Of these, spilled"), h("dd", null, part(x.followed_spilled, x.followed)), h("dt", null, "Placed otherwise, spilled"), h("dd", null, part(x.spilled - x.followed_spilled, x.started - x.followed)),
          h("dt", null, "Started when told"), h("dd", null, part(x.on_time, x.started)),
          h("dt", null, "Slowdown as predicted"), h("dd", null, x.measured === 0 ? h("span", { class: "unknown" }, "none measured") : part(x.inside, x.measured))])]));
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return put(graded, heading, box("unknown", "No ledger is kept here.", `${error.message}.`));
    }
  }

  return {
    every: 0,
    async refresh() {
      const [domains] = await Promise.all([get("/v1/domains"), grades()]);
      names = new Map(domains.domains.map((d) => [d.domain, d.label ?? d.domain]));
      if (q.get("gpus")) await ask();
      else put(out, box("empty", "Nothing asked yet.", "Give the size of a job and ask."));
      return domains;
    },
  };
}
