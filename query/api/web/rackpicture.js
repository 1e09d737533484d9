// The rack picture of one job: each rack it sat in, tray by tray, as it was when the placement began.
import { h, s } from "./dom.js";
import { plural, shardName } from "./words.js";

const cell = 13;
const most = 24; // racks; a wider job is told by figures

// rackPicture draws the racks of one placement. map may be null: then trays are counted, not placed.
export function rackPicture(placement, verdict, map, jobID, attempt) {
  const kind = verdict.outcome === "spill" ? "spill" : verdict.outcome === "unknown" ? "unknown" : verdict.outcome === "minimal_spread" ? "spread" : "ok";
  const racks = verdict.shape.slice(0, most).map((shard) => ({ shard, trays: map ? trays(map, shard.domain, jobID, attempt) : null }));
  const told = verdict.shape.map((p) => `${shardName(p)} ${p.gpus ?? "an unknown number of"} GPUs on ${plural(p.nodes, "node")}`).join("; ");
  return h("figure", { class: "racks" },
    h("div", { class: "rack-row", role: "img", "aria-label": `Where it ran: ${told}` }, racks.map(({ shard, trays: list }) => rack(shard, list, kind))),
    verdict.shape.length > most ? h("p", { class: "muted" }, `and ${verdict.shape.length - most} more racks`) : null,
    h("figcaption", null,
      h("span", { class: `key ${kind}` }, "this job"), h("span", { class: "key other" }, "other jobs"), h("span", { class: "key free" }, "free"), h("span", { class: "key down" }, "out of service"),
      map ? " as it was when the placement began." : " Positions inside a rack are not known for that time: trays are counted from the top."));
}

// trays reads the nodes of one domain off the map: per GPU mine, other, free, down or lost.
function trays(map, domain, jobID, attempt) {
  const d = map.domains.domain.indexOf(domain);
  if (d < 0) return null;
  const first = map.domains.first_node[d];
  const last = map.domains.first_node[d + 1];
  const rows = [];
  for (let n = first; n < last; n++) rows.push({ name: map.nodes.name[n], present: map.nodes.gpus_present[n], usable: map.nodes.gpus_usable[n], gpus: [] });
  map.held.node.forEach((n, i) => {
    if (n < first || n >= last) return;
    const job = map.jobs[map.held.job[i]];
    const mine = job.job_id === jobID && job.attempt === attempt;
    const row = rows[n - first];
    const count = map.held.gpus[i] ?? (row.present ?? 4) - row.gpus.length;
    for (let g = 0; g < count; g++) row.gpus.push(mine ? "mine" : "other");
  });
  for (const row of rows) {
    const present = row.present ?? Math.max(4, row.gpus.length);
    const down = row.usable === null ? 0 : Math.max(0, present - row.usable);
    while (row.gpus.length < present) row.gpus.push(row.usable === null ? "lost" : present - row.gpus.length <= down ? "down" : "free");
  }
  return rows;
}

function rack(shard, list, kind) {
  const rows = list ?? Array.from({ length: shard.nodes }, () => ({ name: "", gpus: Array.from({ length: Math.max(1, Math.round((shard.gpus ?? 4 * shard.nodes) / Math.max(1, shard.nodes))) }, () => "mine") }));
  const columns = Math.max(1, ...rows.map((r) => r.gpus.length));
  const width = columns * cell + 6;
  const height = rows.length * cell + 6;
  const cells = rows.flatMap((row, y) => row.gpus.map((what, x) => {
    const at = { x: 3 + x * cell, y: 3 + y * cell, width: cell - 2, height: cell - 2, class: `gpu ${what === "mine" ? kind : what}` };
    const box = s("rect", at, s("title", null, `${row.name}: ${{ mine: "this job", other: "another job", free: "free", down: "out of service", lost: "state not known" }[what]}`));
    if (what === "down") return [box, s("path", { class: "cross", d: `M${at.x + 2} ${at.y + 2}l7 7m0-7l-7 7` })];
    if (what === "mine" && kind === "spill") return [box, s("path", { class: "stripe", d: `M${at.x + 1} ${at.y + 10}l9-9` })];
    return [box];
  })).flat();
  return h("div", { class: "rack" },
    h("div", { class: "rack-name" }, shardName(shard)),
    s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, s("rect", { class: "frame", x: 0.5, y: 0.5, width: width - 1, height: height - 1, rx: 2 }), cells),
    h("div", { class: "rack-count" }, `${shard.gpus ?? "?"} GPUs`, h("br"), h("span", { class: "muted" }, plural(shard.nodes, "node"))));
}
