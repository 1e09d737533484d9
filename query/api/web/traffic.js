// Traffic of a job: what its counters say of the verdict, how much went where, and which node is the odd one out.
import { box, h, s } from "./dom.js";
import { clock, plural, span, unknown } from "./words.js";

export const evidence = {
  unknown: ["unknown", "? Cannot say", "What was measured does not say whether the placement costs it."],
  silent_fallback: ["wrong", "✗ Silent fallback", "It sits inside one domain, yet its traffic goes over the scale-out network."],
  confirmed: ["wrong", "✗ The spill costs", "It talks across domains: the traffic confirms the verdict."],
  contradicted: ["ok", "✓ The spill hardly costs", "It spilled, yet hardly anything goes over the scale-out network."],
  in_domain: ["ok", "✓ Inside its domain", "Its traffic stays on NVLink."],
  expected: ["ok", "✓ As its size asks", "It is too large for one domain and talks across them."],
  idle: ["stale", "◷ Idle", "It holds its GPUs and moves next to nothing."],
};

const rate = (n) => (n === null || n === undefined ? unknown() : `${n >= 10 ? n.toFixed(0) : n >= 0.1 ? n.toFixed(1) : n.toFixed(3)} GB/s`);

// trafficCard shows a verdict's traffic and, where the API gave it, its course. Both may be null: then nobody measured.
export function trafficCard(told, course) {
  if (!told && !course?.steps.length) {
    return box("unknown", "No traffic is known for it.", "No NVLink or network counters of its nodes were collected while it ran, so what the placement cost cannot be measured.");
  }
  const out = [];
  if (told) {
    const [kind, word, long] = evidence[told.evidence] ?? evidence.unknown;
    out.push(h("p", null, h("span", { class: `state ${kind}` }, word), ". ", long, told.reason ? ` Reason: ${told.reason.replaceAll("_", " ")}.` : ""),
      h("dl", { class: "facts" }, h("dt", null, "NVLink, a GPU"), h("dd", null, rate(told.nvlink_gb_s)), h("dt", null, "Scale-out, a GPU"), h("dd", null, rate(told.scale_out_gb_s)),
        h("dt", null, "Measured"), h("dd", null, `${plural(told.gpus_measured, "GPU")} for ${span(told.seconds)}`)));
    if (told.outlier_nodes.length) out.push(box("wrong", `Odd one out: ${told.outlier_nodes.slice(0, 6).join(", ")}${told.outlier_nodes.length > 6 ? ` and ${told.outlier_nodes.length - 6} more` : ""}.`, "NVLink moves far less there than on the other nodes of this job."));
  }
  if (course?.steps.length > 1) out.push(lines(course.steps));
  if (course?.nodes.length) out.push(nodes(course));
  out.push(h("p", { class: "muted" }, "Both directions together, 1 GB = 1e9 bytes."));
  return out;
}

// lines draws both rates over time, each on its own scale, since they differ by an order of magnitude. Gaps stay gaps.
function lines(steps) {
  const [w, height] = [320, 54];
  const from = Date.parse(steps[0].at);
  const to = Date.parse(steps.at(-1).at);
  const gap = 2.5 * Math.min(...steps.slice(1).map((p, i) => Date.parse(p.at) - Date.parse(steps[i].at)));
  return [["nvlink_gb_s", "NVLink", "solid"], ["scale_out_gb_s", "Scale-out", "dashed"]].map(([key, name, style]) => {
    const most = Math.max(...steps.map((p) => p[key] ?? 0));
    if (steps.every((p) => p[key] === null)) return h("p", { class: "muted" }, `${name}: not measured`);
    let path = "";
    let last = null;
    for (const p of steps) {
      const at = Date.parse(p.at);
      if (p[key] === null) {
        last = null;
        continue;
      }
      path += `${last !== null && at - last <= gap ? "L" : "M"}${(4 + ((w - 8) * (at - from)) / Math.max(1, to - from)).toFixed(1)} ${(height - 4 - ((height - 10) * p[key]) / Math.max(most, 1e-9)).toFixed(1)}h0.5`;
      last = at;
    }
    return h("figure", { class: "spark" }, h("figcaption", null, `${name}, most `, rate(most)),
      s("svg", { viewBox: `0 0 ${w} ${height}`, role: "img", "aria-label": `${name} from ${clock(steps[0].at)} to ${clock(steps.at(-1).at)}, most ${most.toFixed(1)} GB/s` },
        s("path", { class: "grid", d: `M4 ${height - 4}H${w - 4}` }), s("path", { class: style, d: path })));
  });
}

// nodes ranks the nodes that move least: the odd one out stands first.
function nodes(course) {
  const most = Math.max(...course.nodes.map((n) => n.nvlink_gb_s ?? 0));
  const shown = course.nodes.slice(0, 8);
  return h("details", null, h("summary", null, `Nodes, least NVLink first (${course.nodes.length})`), h("ul", { class: "strip" }, shown.map((n) => {
    const bar = h("span", { class: "bar" });
    bar.style.width = `${most > 0 ? (100 * (n.nvlink_gb_s ?? 0)) / most : 0}%`;
    return h("li", null, h("span", null, n.node), h("span", { class: "track" }, bar), h("span", { class: "number" }, rate(n.nvlink_gb_s)));
  })), course.nodes.length > shown.length ? h("p", { class: "muted" }, `and ${course.nodes.length - shown.length} that move more`) : null);
}
