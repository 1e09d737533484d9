// Racks: who is where, which jobs cross racks, what is free or out of service.
import { box, h, keep, kept, put, table } from "./dom.js";
import { get } from "./api.js";
import { RackMap, colouring, readMap, worst } from "./rackmap.js";
import { kinds, tile } from "./palette.js";
import { badge, causes, clock, domainHref, figure, jobHref, outcomeOf, plural, when } from "./words.js";

const modes = [["verdict", "verdict"], ["job", "job"], ["tenant", "tenant (account)"], ["class", "service class"], ["queue", "queue"], ["health", "health"]];
const zooms = [["auto", "fit"], ["small", "small"], ["medium", "medium"], ["large", "large"]];

export function open(root, route, shell) {
  shell.title("Racks");
  const q = route.query;
  const state = {
    by: modes.some(([m]) => m === q.get("by")) ? q.get("by") : "verdict", zoom: kept("spillway-zoom", "auto"),
    lines: q.get("lines") !== "off", at: q.get("at") ?? "", job: q.get("job") ?? "", domain: q.get("domain") ?? "", cluster: q.get("cluster") ?? "",
    table: q.get("as") === "table",
  };
  let m = null;

  const map = new RackMap({ onPick: pick, onHover: hover });
  const summary = h("p", { class: "summary" }, "Reading the map…");
  const legend = h("ul", { class: "legend" });
  const panel = h("section", { class: "panel side", "aria-label": "Selection" });
  const place = h("div", { class: "map-place" });
  const choose = (label, options, value, change) => h("label", { class: "field" }, h("span", null, label),
    h("select", { onchange: (e) => change(e.target.value) }, options.map(([v, text]) => h("option", { value: v, selected: v === value }, text))));
  const at = h("input", { type: "datetime-local", step: "1", value: state.at.slice(0, 19), onchange: () => {
    state.at = at.value ? `${at.value.length === 16 ? `${at.value}:00` : at.value}Z` : "";
    remember();
    shell.again();
  } });
  const lines = h("input", { type: "checkbox", checked: state.lines, onchange: () => { state.lines = lines.checked; remember(); redraw(); } });
  const asTable = h("input", { type: "checkbox", checked: state.table, onchange: () => { state.table = asTable.checked; remember(); redraw(); } });
  put(root,
    h("h1", null, "Racks"), summary,
    h("div", { class: "controls" },
      choose("Colour by", modes, state.by, (v) => { state.by = v; remember(); redraw(); }),
      choose("Size", zooms, state.zoom, (v) => { state.zoom = v; keep("spillway-zoom", v); redraw(); }),
      h("label", { class: "field" }, h("span", null, "At (UTC), empty = now"), at),
      h("label", { class: "check" }, lines, " Lines across racks"),
      h("label", { class: "check" }, asTable, " As a table")),
    h("p", { id: "map-help", class: "hidden" }, "Arrow keys go from rack to rack, Enter opens the rack, Escape drops the selection."),
    h("div", { class: "split" }, h("div", { class: "grow" }, place, legend), panel));

  function remember() {
    shell.replace({ by: state.by === "verdict" ? "" : state.by, lines: state.lines ? "" : "off", at: state.at, job: state.job, domain: state.domain, cluster: state.cluster, as: state.table ? "table" : "" });
  }

  const selectedJob = () => (state.job && m ? m.map.jobs.findIndex((j) => j.job_id === state.job && (!state.cluster || j.cluster === state.cluster)) : -1);
  const selectedDomain = () => (state.domain && m ? m.map.domains.domain.findIndex((d, i) => d === state.domain && (!state.cluster || m.map.domains.cluster[i] === state.cluster)) : -1);

  function pick(found, openIt) {
    if (openIt && m.map.domains.domain[found.domain]) return shell.go(domainHref(m.map.domains.cluster[found.domain], m.map.domains.domain[found.domain]));
    if (found.job >= 0) [state.job, state.domain, state.cluster] = [m.map.jobs[found.job].job_id, "", m.map.jobs[found.job].cluster];
    else if (found.domain >= 0) [state.job, state.domain, state.cluster] = ["", m.map.domains.domain[found.domain], m.map.domains.cluster[found.domain]];
    else [state.job, state.domain, state.cluster] = ["", "", ""];
    remember();
    select();
  }

  function hover(found) {
    const d = found.domain;
    const t = m.totals[d];
    const out = [`${m.names[d]}: ${plural(t.held, "GPU")} held, ${t.free} free${t.down ? `, ${t.down} out of service` : ""}${t.lost ? `, ${t.lost} not known` : ""}`];
    const spilling = [...t.jobs].filter((j) => m.map.jobs[j].outcome === "spill" && !m.map.jobs[j].probe).length;
    if (spilling) out.push(`${plural(spilling, "spilling job")} here`);
    if (found.node >= 0) out.push(`${m.map.nodes.name[found.node]}: ${m.map.states[m.map.nodes.state[found.node]]}`);
    if (found.job >= 0) {
      const j = m.map.jobs[found.job];
      out.push(`job ${j.job_id} ${j.name}, ${j.user}: ${outcomeOf(j.outcome).word.toLowerCase()}${j.cause ? ` by ${j.cause}` : ""}`);
    }
    return out;
  }

  function redraw() {
    if (!m) return;
    const colours = colouring(m, state.by);
    put(legend,
      colours.legend.map((l) => h("li", null, swatch(l.style), l.text, l.gpus === undefined ? "" : ` (${plural(l.gpus, "GPU")})`)),
      colours.more ? h("li", null, `and ${plural(colours.more, "more group")}`) : null,
      h("li", null, swatch(kinds.free), "free"), h("li", null, swatch(kinds.down), "out of service"),
      m.totals.some((t) => t.lost) ? h("li", null, swatch(kinds.lost), "state not known") : null);
    if (m.domains === 0) {
      put(place, box("empty", state.at ? "Nothing is known of that moment." : "No rack is known yet.", state.at ? "Choose a later time." :
        ["Spillway learns racks from its topology and node sources: see ", h("a", { href: "/status" }, "Status"), " for which of them has reported."]));
    } else if (state.table) {
      put(place, domainTable());
    } else {
      if (map.element.parentNode !== place) put(place, map.element);
      map.show(m, colours, state.zoom, state.lines);
    }
    select();
  }

  function domainTable() {
    const list = m.names.map((name, d) => ({ name, d, ...m.totals[d] }));
    return table(plural(list.length, "domain"), [
      { head: "Domain", cell: (r) => (m.map.domains.domain[r.d] ? h("a", { href: domainHref(m.map.domains.cluster[r.d], m.map.domains.domain[r.d]) }, r.name) : r.name) },
      { head: "Cluster", cell: (r) => m.map.domains.cluster[r.d] },
      { head: "Nodes", number: true, cell: (r) => figure(r.nodes) }, { head: "GPUs", number: true, cell: (r) => figure(r.gpus) },
      { head: "Held", number: true, cell: (r) => figure(r.held) }, { head: "Free", number: true, cell: (r) => figure(r.free) },
      { head: "Out of service", number: true, cell: (r) => figure(r.down) }, { head: "Not known", number: true, cell: (r) => figure(r.lost) },
      { head: "Spilling jobs", number: true, cell: (r) => figure([...r.jobs].filter((j) => m.map.jobs[j].outcome === "spill" && !m.map.jobs[j].probe).length) },
    ], list);
  }

  function select() {
    const job = selectedJob();
    const domain = selectedDomain();
    map.select({ job, domain });
    if (job >= 0) showJob(job);
    else if (domain >= 0) showDomain(domain);
    else if (state.job && m) put(panel, h("h2", null, `Job ${state.job}`), box("empty", "It holds nothing here.", h("a", { href: `/jobs/${encodeURIComponent(state.job)}` }, "Open its page")));
    else showSpills();
  }

  const clear = () => h("button", { type: "button", onclick: () => pick({ domain: -1, job: -1 }, false) }, "Drop the selection");

  function showJob(i) {
    const j = m.map.jobs[i];
    const parts = [...m.shards[i]].sort((a, b) => (b[1] ?? 0) - (a[1] ?? 0));
    put(panel,
      h("h2", null, h("a", { href: jobHref(j) }, `Job ${j.job_id}`)),
      h("p", null, badge(j.outcome, j.cause), " ", j.name),
      h("p", null, `${j.gpus ?? "An unknown number of"} GPUs in `, figure(j.domains_used), " domains; ", figure(j.domains_min), " would hold it."),
      j.cause ? h("p", null, causes[j.cause]?.long) : null,
      h("ul", { class: "shards" }, parts.slice(0, 12).map(([d, gpus]) => h("li", null, `${m.names[d]}: `, figure(gpus), " GPUs")),
        parts.length > 12 ? h("li", null, `and ${parts.length - 12} more`) : null),
      h("dl", { class: "facts" }, h("dt", null, "User"), h("dd", null, `${j.user || "not known"} (${j.account || "account not known"})`),
        h("dt", null, "Began"), h("dd", null, when(j.from)), h("dt", null, "Ends, by its limit"), h("dd", null, when(j.expected_end, "no limit known"))),
      h("p", null, h("a", { class: "button", href: jobHref(j) }, "Why, and what to submit next time")), clear());
  }

  function showDomain(d) {
    const t = m.totals[d];
    const id = m.map.domains.domain[d];
    const here = [...t.jobs].map((i) => ({ i, gpus: m.shards[i].get(d), j: m.map.jobs[i] })).sort((a, b) => (b.gpus ?? 0) - (a.gpus ?? 0));
    put(panel,
      h("h2", null, id ? h("a", { href: domainHref(m.map.domains.cluster[d], id) }, m.names[d]) : "Domain not known"),
      id ? null : box("unknown", "Nobody told which NVLink domain these nodes are in.", h("a", { href: "/topology" }, "Topology health"), " says why."),
      h("p", null, `${plural(t.nodes, "node")}, ${plural(t.gpus, "GPU")}: ${t.held} held, ${t.free} free${t.down ? `, ${t.down} out of service` : ""}${t.lost ? `, ${t.lost} not known` : ""}.`),
      here.length === 0 ? h("p", null, "No job holds anything here.") : h("ul", { class: "jobs" }, here.slice(0, 10).map(({ j, gpus }) => h("li", null,
        h("a", { href: jobHref(j) }, j.job_id), " ", j.name, ": ", figure(gpus), " GPUs here ", badge(j.outcome, j.cause)))),
      here.length > 10 ? h("p", null, `and ${here.length - 10} more`) : null,
      id ? h("p", null, h("a", { class: "button", href: domainHref(m.map.domains.cluster[d], id) }, "Nodes and jobs of this rack")) : null, clear());
  }

  function showSpills() {
    const list = m ? worst(m).map((i) => [i, m.map.jobs[i]]) : [];
    if (!m) return;
    put(panel, h("h2", null, "Spilling now"),
      list.length === 0 ? h("p", null, `${m.map.jobs.some((j) => j.outcome === "unknown") ? "No job that can be judged spills" : "No job spills"} ${state.at ? "at that moment" : "now"}.`) : h("ul", { class: "jobs" }, list.slice(0, 8).map(([i, j]) => h("li", null,
        h("button", { type: "button", class: "link", onclick: () => pick({ domain: -1, job: i }, false) }, `Job ${j.job_id}`), " ", h("span", { class: "muted" }, j.name),
        h("br"), `${j.gpus ?? "?"} GPUs, ${j.domains_used ?? "?"} domains for ${j.domains_min ?? "?"}`, j.cause ? `: ${j.cause}` : ""))),
      list.length > 0 ? h("p", null, h("a", { class: "button", href: "/spills?state=running" }, "All spills")) : null,
      h("p", { class: "muted" }, "Choose a job or a rack to see it here."));
  }

  return {
    get every() { return state.at ? 0 : m && m.domains > 300 ? 15000 : 5000; },
    async refresh() {
      const answer = await get("/v1/map", { at: state.at });
      m = readMap(answer);
      const sum = (key) => m.totals.reduce((n, t) => n + t[key], 0);
      const spilling = answer.jobs.filter((j) => j.outcome === "spill" && !j.probe).length;
      const lost = sum("lost");
      const unjudged = answer.jobs.filter((j) => j.outcome === "unknown" && !j.probe).length;
      const known = answer.domains.domain.filter((d) => d !== "").length;
      const homeless = m.names.reduce((n, _, d) => n + (answer.domains.domain[d] === "" ? m.totals[d].nodes : 0), 0);
      put(summary, state.at ? `At ${clock(state.at)}: ` : "",
        `${plural(known, "rack")}, ${plural(sum("gpus"), "GPU")}: ${sum("held").toLocaleString("en")} held, ${sum("free").toLocaleString("en")} free, ${sum("down").toLocaleString("en")} out of service`,
        lost ? `, ${lost.toLocaleString("en")} not known` : "", ". ",
        spilling ? h("a", { href: "/spills?state=running" }, h("strong", null, `${plural(spilling, "job")} ${spilling === 1 ? "spills" : "spill"} across racks.`)) : unjudged ? "No job that can be judged spills." : "No job spills.",
        unjudged ? h("strong", { class: "unknown" }, ` ${plural(unjudged, "job")} cannot be judged.`) : "",
        homeless ? [" ", h("a", { href: "/topology" }, `${plural(homeless, "node")} without a known domain.`)] : "");
      redraw();
      return answer;
    },
    close() { map.close(); },
  };
}

function swatch(style) {
  const span = h("span", { class: "swatch", "aria-hidden": "true" });
  const t = tile(style, 1);
  if (t) span.style.backgroundImage = `url(${t.toDataURL()})`;
  else if (style.fill) span.style.backgroundColor = style.fill;
  else if (style.pattern === "question") span.classList.add("dashed");
  if (style.letter) {
    const letter = h("b", null, style.letter);
    if (style.fill) [letter.style.color, letter.style.backgroundColor] = [style.ink, style.fill];
    span.append(letter);
  }
  return span;
}
