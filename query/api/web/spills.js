// Spills: which placements spilled, worst first, narrowed by whoever asks.
import { box, h, put, table } from "./dom.js";
import { get } from "./api.js";
import { evidence } from "./traffic.js";
import { causes, figure, jobHref, plural, shapeText, when } from "./words.js";

const backs = [["1h", "1 hour", 1], ["24h", "24 hours", 24], ["7d", "7 days", 168], ["30d", "30 days", 720]];

const says = {
  confirmed: "the spill costs traffic", contradicted: "it hardly costs", silent_fallback: "silent fallback: one domain, yet over the network", idle: "idle", unknown: "cannot say",
};

export function open(root, route, shell) {
  shell.title("Spills");
  const q = route.query;
  const f = {
    state: q.get("state") === "running" ? "running" : "any", cause: causes[q.get("cause")] ? q.get("cause") : "", since: backs.some(([b]) => b === q.get("since")) ? q.get("since") : "24h",
    user: q.get("user") ?? "", account: q.get("account") ?? "", service_class: q.get("service_class") ?? "", traffic: says[q.get("traffic")] ? q.get("traffic") : "", sort: q.get("sort") === "newest" ? "newest" : "severity", cluster: q.get("cluster") ?? "",
  };
  let pages = 1;
  const list = h("div", null, box("loading", "Reading spills…"));
  const summary = h("p", { class: "summary", role: "status" });
  const changed = () => {
    pages = 1;
    shell.replace({ ...f, state: f.state === "any" ? "" : f.state, since: f.since === "24h" ? "" : f.since, sort: f.sort === "severity" ? "" : f.sort });
    shell.again();
  };
  const choose = (label, key, options) => h("label", { class: "field" }, h("span", null, label),
    h("select", { name: key, onchange: (e) => { f[key] = e.target.value; changed(); } }, options.map(([v, text]) => h("option", { value: v, selected: v === f[key] }, text))));
  const type = (label, key) => h("label", { class: "field" }, h("span", null, label),
    h("input", { name: key, value: f[key], autocomplete: "off", spellcheck: "false", onchange: (e) => { f[key] = e.target.value.trim(); changed(); } }));
  put(root, h("h1", null, "Spills"), summary,
    h("div", { class: "controls" },
      choose("Which", "state", [["any", "running and ended"], ["running", "running now"]]),
      choose("Within the last", "since", backs),
      choose("Cause", "cause", [["", "any cause"], ...Object.keys(causes).map((c) => [c, `${c}: ${causes[c].short}`])]),
      choose("Order", "sort", [["severity", "worst first"], ["newest", "newest first"]]),
      type("User", "user"), type("Account", "account")),
    h("details", { class: "more", open: Boolean(f.service_class || f.cluster || f.traffic) }, h("summary", null, "More filters"), h("div", { class: "controls" }, choose("Counters say", "traffic", [["", "anything or nothing"], ...Object.entries(says)]), type("Service class", "service_class"), type("Cluster", "cluster"))),
    list);

  const narrowed = () => f.cause || f.traffic || f.user || f.account || f.service_class || f.cluster || f.state === "running";

  async function ask() {
    const since = new Date(Date.now() - backs.find(([b]) => b === f.since)[2] * 3600e3).toISOString();
    const all = [];
    let answer;
    let cursor = "";
    for (let i = 0; i < pages; i++) {
      answer = await get("/v1/spills", { ...f, since, limit: 100, cursor });
      all.push(...answer.spills);
      if (!answer.next) break;
      cursor = answer.next;
    }
    return { ...answer, spills: all };
  }

  return {
    every: 10000,
    async refresh() {
      const answer = await ask();
      const span = backs.find(([b]) => b === f.since)[1];
      if (answer.total === 0) {
        const running = f.state === "running" ? "No placement that runs now was judged a spill" : "No placement was judged a spill";
        put(summary, "");
        put(list, box("empty", `${f.traffic === "silent_fallback" ? "No silent fallback was found" : running}${narrowed() ? " by these filters" : ""}.`,
          `It looked at placements that held GPUs in the last ${span}. `,
          answer.freshness.complete ? "Its sources were read in full." : "But facts are missing (see the line above), so this is not an all-clear. ",
          h("a", { href: "/topology" }, "Nodes whose domain is not known"), " are never judged."));
        return answer;
      }
      put(summary, `${plural(answer.total, "spilled placement")} in the last ${span}${narrowed() ? ", by these filters" : ""}.`);
      put(list, table(`${answer.spills.length} of ${answer.total} spilled placements`, [
        { head: "Job", cell: (r) => h("a", { href: jobHref(r) }, r.job_id, r.attempt ? ` (attempt ${r.attempt})` : "") },
        { head: "Name", cell: (r) => r.name || h("span", { class: "muted" }, "no name") },
        { head: "Cause", cell: (r) => (r.verdict.cause ? h("span", { class: "cause", title: causes[r.verdict.cause].long }, h("b", { "aria-hidden": "true" }, causes[r.verdict.cause].letter), r.verdict.cause) : h("span", { class: "unknown" }, "cause unknown")) },
        { head: "GPUs", number: true, cell: (r) => figure(r.verdict.gpus) },
        { head: "Domains", number: true, cell: (r) => [figure(r.verdict.domains_used), r.verdict.unknown_nodes ? "+" : ""] },
        { head: "Would do", number: true, cell: (r) => figure(r.verdict.domains_min) },
        { head: "GPUs by domain", cell: (r) => h("span", { class: "shape" }, shapeText(r.verdict.shape)) },
        { head: "Traffic", cell: (r) => (r.verdict.traffic ? h("span", { class: `state ${evidence[r.verdict.traffic.evidence]?.[0]}` }, evidence[r.verdict.traffic.evidence]?.[1]) : h("span", { class: "unknown" }, "not measured")) },
        { head: "User", cell: (r) => `${r.user || "not known"}${r.account ? ` (${r.account})` : ""}` },
        { head: "Class", cell: (r) => r.service_class || h("span", { class: "muted" }, "none") },
        { head: "Began", cell: (r) => when(r.verdict.from) },
        { head: "Ended", cell: (r) => (r.verdict.to ? when(r.verdict.to) : "runs") },
      ], answer.spills), answer.next ? h("p", null, h("button", { type: "button", onclick: () => { pages++; shell.again(); } }, "Show 100 more")) : null);
      return answer;
    },
  };
}
