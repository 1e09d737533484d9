// Slots: how many jobs of a size would fit now, where, and how that falls off with size.
import { box, h, put, s, table } from "./dom.js";
import { Refusal, get } from "./api.js";
import { clock, domainHref, figure, plural, unknown } from "./words.js";
import { whatIf } from "./whatif.js";

export function open(root, route, shell) {
  shell.title("Slots");
  let gpus = Math.max(1, Math.min(65535, Number.parseInt(route.query.get("gpus") ?? "64", 10) || 64));
  const answerAt = h("div", null, box("loading", "Counting slots…"));
  const curveAt = h("section", { class: "panel" }, h("h2", null, "Capacity by size"));
  const headAt = h("div");
  const trendAt = h("section", { class: "panel" }, h("h2", null, "Racks by class"), box("loading", "Reading how it was…"));
  let known = [];
  const change = whatIf(() => known, route, () => remember());
  let first = true;
  const input = h("input", { type: "number", min: "1", max: "65535", value: String(gpus), list: "sizes" });
  const set = (n) => {
    gpus = n;
    input.value = String(n);
    remember();
    shell.again();
  };
  const remember = () => shell.replace({ gpus: gpus === 64 ? "" : gpus, ...change.asked() });
  put(root, h("h1", null, "Slots"),
    h("form", { class: "controls", onsubmit: (e) => { e.preventDefault(); if (input.reportValidity()) set(Number(input.value)); } },
      h("label", { class: "field" }, h("span", null, "GPUs of one job, in one NVLink domain"), input),
      h("button", { type: "submit", class: "primary" }, "Count"),
      h("span", { class: "quick" }, [4, 8, 16, 32, 64, 72].map((n) => h("button", { type: "button", onclick: () => set(n) }, String(n))))),
    headAt, h("div", { class: "sheet" }, h("div", null, curveAt, change.panel, trendAt), answerAt));

  return {
    every: 5000,
    async refresh() {
      const [slots, domains] = await Promise.all([
        get("/v1/slots", { gpus }).catch((error) => {
          if (error instanceof Refusal && error.status === 404) return error;
          throw error;
        }), get("/v1/domains")]);
      known = domains.domains;
      drawSlots(slots, domains);
      if (first) trend(domains.domains);
      if (first && change.wanted) change.ask();
      first = false;
      drawCurve(domains.domains);
      return domains;
    },
  };

  function drawSlots(answer, domains) {
    put(headAt);
    if (answer instanceof Refusal) return put(answerAt, box("unknown", `Slots of ${plural(gpus, "GPU")} are not counted here.`, answer.message));
    if (domains.domains.length === 0) {
      return put(answerAt, box("empty", "No domain is known yet.", "Slots are counted per NVLink domain: ", h("a", { href: "/status" }, "Status"), " says which source has reported."));
    }
    const free = answer.domains.reduce((n, d) => n + d.gpus_free, 0);
    const stranded = answer.domains.reduce((n, d) => n + d.gpus_stranded, 0);
    const largest = answer.domains.reduce((n, d) => Math.max(n, d.gpus_free), 0);
    put(headAt,
      h("p", { class: "big" }, h("strong", null, answer.total.toLocaleString("en")), ` ${answer.total === 1 ? "slot" : "slots"} of ${plural(gpus, "GPU")} now`),
      answer.total === 0 && free >= gpus ? box("wrong", `${plural(free, "GPU")} are free, yet no ${gpus} of them in one domain.`, `The most in one domain is ${largest}. A job of ${gpus} has to wait, or it spills.`) : null,
      h("p", { class: "summary" }, `${plural(free, "GPU")} free in all, ${stranded.toLocaleString("en")} of them stranded: free, but in no slot of this size. It counts ${answer.basis}.`));
    const ordered = [...answer.domains].sort((a, b) => b.slots - a.slots || b.gpus_free - a.gpus_free || ((a.label ?? a.domain) < (b.label ?? b.domain) ? -1 : 1));
    const several = new Set(ordered.map((d) => d.cluster)).size > 1;
    const mixed = new Set(ordered.map((d) => d.gpu_model ?? null)).size > 1;
    put(answerAt,
      table(`${plural(answer.domains.length, "domain")}, most slots first`, [
        { head: "Domain", cell: (d) => h("a", { href: domainHref(d.cluster, d.domain) }, d.label ?? d.domain) },
        ...(several ? [{ head: "Cluster", cell: (d) => d.cluster }] : []),
        ...(mixed ? [{ head: "GPU model", cell: (d) => d.gpu_model ?? unknown() }] : []),
        { head: `Slots of ${gpus}`, number: true, cell: (d) => figure(d.slots) }, { head: "Free", number: true, cell: (d) => figure(d.gpus_free) },
        { head: "Stranded", number: true, cell: (d) => figure(d.gpus_stranded) }, { head: "Usable", number: true, cell: (d) => figure(d.gpus_usable) },
      ], ordered.slice(0, 200)),
      answer.domains.length > 200 ? h("p", { class: "muted" }, `The first 200 of ${answer.domains.length}; GET /v1/slots has all.`) : null);
    return undefined;
  }

  // The curve counts wholly free nodes: N(s) = sum over domains of floor(free nodes / s), against floor(all free nodes / s),
  // which is what there would be if no job lay in between.
  function drawCurve(domains) {
    const most = Math.max(0, ...domains.map((d) => d.nodes));
    if (most < 2) return put(curveAt, h("h2", null, "Capacity by size"), box("empty", "There is nothing to draw.", "No domain has more than one node."));
    const perNode = Math.round(domains.reduce((n, d) => n + d.gpus, 0) / Math.max(1, domains.reduce((n, d) => n + d.nodes, 0)));
    const sizes = Array.from({ length: most }, (_, i) => i + 1);
    const free = domains.reduce((n, d) => n + d.nodes_free, 0);
    const real = sizes.map((n) => domains.reduce((sum, d) => sum + Math.floor(d.nodes_free / n), 0));
    const ideal = sizes.map((n) => Math.floor(free / n));
    const shareOf = (list) => list.map((n, i) => (free ? (n * sizes[i]) / free : 0));
    const cliff = sizes.findLast((_, i) => real[i] > 0) ?? 0;
    put(curveAt, h("h2", null, "Capacity by size"),
      h("p", null, cliff === 0 ? "No node is wholly free: nothing larger than a part of a node fits." : `The largest job that fits one domain now: ${plural(cliff, "node")}, ${plural(cliff * perNode, "GPU")}.`),
      chart(sizes, shareOf(real), perNode, real),
      h("p", { class: "muted" }, `Of the ${plural(free, "wholly free node")}, the share that jobs of a size could use, each in one domain; the figures count the jobs. What is missing to 100 % is stranded.`),
      h("details", null, h("summary", null, "As a table"), table("Jobs that fit, by size", [
        { head: "Nodes", number: true, cell: (i) => sizes[i] }, { head: "GPUs", number: true, cell: (i) => sizes[i] * perNode },
        { head: "Fit now", number: true, cell: (i) => real[i] }, { head: "If free nodes lay together", number: true, cell: (i) => ideal[i] },
      ], sizes.map((_, i) => i))));
    return undefined;
  }

  // trend shows the classes of racks now and over the last month. History needs the advisor; now does not.
  async function trend(domains) {
    const now = classes.map(([, word, is]) => h("li", null, h("b", null, String(domains.filter(is).length)), ` ${word}`));
    let past = null;
    try {
      const answer = await get("/v1/fragmentation", { since: new Date(Date.now() - 30 * 86400e3).toISOString(), gpus: 1 });
      past = answer.history.filter((p) => p.racks_whole + p.racks_nearly + p.racks_fewer > 0);
    } catch (error) {
      if (!(error instanceof Refusal)) return put(trendAt, h("h2", null, "Racks by class"), box("wrong", "Spillway does not answer."));
    }
    return put(trendAt, h("h2", null, "Racks by class"), domains.length ? h("ul", null, now) : box("empty", "No rack is known yet."),
      past === null ? box("unknown", "How it was is not known here.", "This Spillway keeps no picture to ask.") : past.length < 2 ? h("p", { class: "muted" }, "There is no history yet.") : stack(past));
  }
}

const classes = [
  ["racks_whole", "with all trays in service", (d) => d.nodes > 0 && d.nodes_usable >= d.nodes],
  ["racks_nearly", "with at least 16 of 18", (d) => d.nodes_usable < d.nodes && 18 * d.nodes_usable >= 16 * d.nodes],
  ["racks_fewer", "with fewer", (d) => 18 * d.nodes_usable < 16 * d.nodes],
];

// stack draws how many racks were in each class, the best at the bottom; each class has its own pattern.
function stack(past) {
  const [w, height, left] = [640, 150, 44];
  const total = (p) => classes.reduce((n, [key]) => n + p[key], 0);
  const most = Math.max(...past.map(total));
  const x = (i) => left + ((w - left - 10) * i) / past.length;
  const y = (n) => 8 + (height - 34) * (1 - n / most);
  let below = past.map(() => 0);
  const bars = classes.flatMap(([key]) => {
    const from = below;
    below = past.map((p, i) => from[i] + p[key]);
    return past.map((p, i) => (p[key] ? s("rect", { class: key, x: x(i), y: y(below[i]), width: Math.max(1, (w - left - 10) / past.length), height: y(from[i]) - y(below[i]) },
      s("title", null, `${clock(p.at)}: ${p.racks_whole} whole, ${p.racks_nearly} nearly, ${p.racks_fewer} fewer`)) : null)).filter(Boolean);
  });
  const last = past.at(-1);
  return h("figure", { class: "racks" }, s("svg", { class: "chart", viewBox: `0 0 ${w} ${height}`, role: "img", "aria-label": `Racks by class from ${clock(past[0].at)} to ${clock(last.at)}: at first ${classes.map(([k, word]) => `${past[0][k]} ${word}`).join(", ")}; at the end ${classes.map(([k, word]) => `${last[k]} ${word}`).join(", ")}` },
    [0, most].map((n) => [s("path", { class: "grid", d: `M${left} ${y(n)}H${w - 10}` }), s("text", { x: left - 6, y: y(n) + 4, "text-anchor": "end" }, String(n))]), bars,
    s("text", { x: left, y: height - 8 }, clock(past[0].at).slice(0, 10)), s("text", { x: w - 10, y: height - 8, "text-anchor": "end" }, clock(last.at).slice(0, 10))),
  h("figcaption", null, classes.map(([key, word]) => h("span", { class: `key ${key}` }, word))));
}

function chart(sizes, real, perNode, counts) {
  const [w, height, left, bottom] = [640, 230, 44, 34];
  const x = (i) => left + ((w - left - 10) * i) / sizes.length;
  const y = (share) => 22 + (height - bottom - 22) * (1 - Math.min(1, share));
  const step = (list) => list.map((v, i) => `${i ? "L" : "M"}${x(i)} ${y(v)}L${x(i + 1)} ${y(v)}`).join("");
  const ticks = sizes.filter((n) => sizes.length <= 18 ? n % 2 === 0 || n === 1 : n % Math.ceil(sizes.length / 12) === 0);
  return s("svg", { class: "chart", viewBox: `0 0 ${w} ${height}`, role: "img", "aria-label": `Share of free nodes that jobs can use, by size: ${sizes.map((n, i) => `${n} nodes ${Math.round(real[i] * 100)} percent`).join(", ")}` },
    [0, 0.5, 1].map((v) => [s("path", { class: "grid", d: `M${left} ${y(v)}H${w - 10}` }), s("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, `${v * 100} %`)]),
    s("path", { class: "area", d: `${step(real)}L${x(sizes.length)} ${y(0)}L${x(0)} ${y(0)}Z` }),
    s("path", { class: "real", d: step(real) }),
    sizes.map((n, i) => (counts[i] > 0 && sizes.length <= 18 ? s("text", { class: "count", x: (x(i) + x(i + 1)) / 2, y: y(real[i]) - 5, "text-anchor": "middle" }, String(counts[i])) : null)).filter(Boolean),
    ticks.map((n) => s("text", { x: (x(n - 1) + x(n)) / 2, y: height - bottom + 14, "text-anchor": "middle" }, String(n * perNode))),
    s("text", { x: (left + w) / 2, y: height - 4, "text-anchor": "middle" }, "GPUs of one job"));
}
