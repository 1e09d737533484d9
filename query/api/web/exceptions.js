// Exceptions: running jobs whose life-cycle facts do not fit together, and what to do about each kind.
import { box, h, put, table } from "./dom.js";
import { get } from "./api.js";
import { figure, jobHref, plural, when } from "./words.js";

// kinds are in the order of how soon somebody should look.
export const kinds = {
  node_down: "On a node that is down", overbooked: "More GPUs held than there are", completing_long: "Ended, yet holds its slot", past_limit: "Over its time limit",
  domain_changed: "Its node changed the domain", node_draining: "On a node that drains", node_replaced: "Node exchanged while it ran", vanished: "Gone without a word",
};

const state = (severity) => (severity === "warning" ? h("span", { class: "state wrong" }, "✗ look") : h("span", { class: "state stale" }, "i note"));

export function open(root, route, shell) {
  shell.title("Exceptions");
  const cluster = route.query.get("cluster") ?? "";
  let kind = kinds[route.query.get("kind")] ? route.query.get("kind") : "";
  const out = h("div", null, box("loading", "Looking for what does not fit…"));
  put(root, h("h1", null, "Life-cycle exceptions"),
    h("p", { class: "summary" }, "Jobs whose facts do not fit together: their scheduler, their nodes and their topology tell different stories."),
    h("div", { class: "controls" }, h("label", { class: "field" }, h("span", null, "Kind"), h("select", { onchange: (e) => {
      kind = e.target.value;
      shell.replace({ cluster, kind });
      shell.again();
    } }, h("option", { value: "" }, "any"), Object.entries(kinds).map(([k, word]) => h("option", { value: k, selected: k === kind }, word))))), out);
  return {
    every: 15000,
    async refresh() {
      const answer = await get("/v1/exceptions", { cluster });
      const shown = answer.exceptions.filter((e) => !kind || e.kind === kind);
      const totals = {}; // of each kind, those that the answer leaves out too
      for (const t of answer.totals) totals[t.kind] = (totals[t.kind] ?? 0) + t.total;
      const severities = Object.fromEntries(shown.map((e) => [e.kind, e.severity]));
      const count = (severity) => Object.keys(severities).filter((k) => severities[k] === severity).reduce((sum, k) => sum + totals[k], 0);
      const look = count("warning");
      if (shown.length === 0) {
        put(out, box("empty", kind ? "None of this kind." : "Everything fits together.", "Jobs that run now and those that vanished in the last hour were looked at. ",
          answer.freshness.complete ? "Their sources were read in full." : "But facts are missing (see the line above), so this is not an all-clear."));
        return answer;
      }
      put(out, h("p", { class: "big" }, h("strong", null, String(look)), ` ${look === 1 ? "wants" : "want"} somebody to look; ${plural(count("info"), "note")}`),
        Object.keys(kinds).filter((k) => shown.some((e) => e.kind === k)).map((k) => {
          const list = shown.filter((e) => e.kind === k);
          return h("section", { class: "panel" }, h("h2", null, state(list[0].severity), ` ${kinds[k]}`), h("p", null, list[0].meaning),
            table(plural(totals[k], "job"), [
              { head: "Job", cell: (e) => h("a", { href: jobHref(e) }, e.job_id, e.attempt ? ` (attempt ${e.attempt})` : "") }, { head: "Name", cell: (e) => e.name || h("span", { class: "muted" }, "no name") },
              { head: "GPUs", number: true, cell: (e) => figure(e.gpus) }, { head: "Since", cell: (e) => when(e.since) },
              { head: "Nodes", cell: (e) => (e.nodes.length ? `${e.nodes.join(", ")}${e.node_count > e.nodes.length ? ` and ${e.node_count - e.nodes.length} more` : ""}` : h("span", { class: "muted" }, "no longer held")) },
              { head: "Detail", cell: (e) => e.detail || h("span", { class: "muted" }, "none") },
              { head: "User", cell: (e) => `${e.user || "not known"}${e.account ? ` (${e.account})` : ""}` }, { head: "Queue", cell: (e) => e.queue || h("span", { class: "muted" }, "not told") },
            ], list.slice(0, 200)),
            totals[k] > Math.min(list.length, 200) ? h("p", { class: "muted" }, `The first ${Math.min(list.length, 200)} of ${totals[k]}; GET /v1/exceptions has up to 1000 of each cluster.`) : null);
        }));
      return answer;
    },
  };
}
