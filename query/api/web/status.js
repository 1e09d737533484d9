// Status: the pipeline hop by hop, in the order of the flow: what each last did and what waits.
import { box, h, put, table } from "./dom.js";
import { get } from "./api.js";
import { sourceTable } from "./topology.js";
import { figure, plural, when } from "./words.js";

export function open(root, route, shell) {
  shell.title("Status");
  put(root, h("h1", null, "Status"), box("loading", "Asking each hop…"));
  return {
    every: 5000,
    async refresh() {
      const began = performance.now();
      const st = await get("/v1/status");
      const took = Math.round(performance.now() - began);
      const bad = st.sources.filter((x) => x.good_at === null || x.problem || x.overdue);
      const newest = st.raw_tables.map((t) => t.loaded_at).filter(Boolean).sort().at(-1);
      const waiting = st.unjudged.reduce((n, u) => n + u.rows, 0);
      const oldest = st.unjudged.map((u) => u.oldest_loaded_at).sort()[0];
      const late = oldest && Date.parse(st.now) - Date.parse(oldest) > 5000;
      const dead = st.dead_letters.reduce((n, x) => n + x.records, 0);
      const quiet = newest && Date.parse(st.now) - Date.parse(newest) > 120000;
      const hops = [
        ["Collect", st.sources.length === 0 ? ["unknown", "? Nothing heard"] : bad.length ? ["wrong", `✗ ${plural(bad.length, "source")} failing or overdue`] : ["ok", `✓ ${plural(st.sources.length, "source")} read`]],
        ["Kafka", dead ? ["stale", `◷ ${plural(dead, "record")} refused today`] : ["ok", "✓ no record refused today"]],
        ["Load", !newest ? ["unknown", "? Nothing loaded yet"] : quiet ? ["stale", "◷ Quiet"] : ["ok", "✓ Loading"], newest ? ["last row ", when(newest)] : ""],
        ["Judge", waiting === 0 ? ["ok", "✓ Up to date"] : late ? ["wrong", `✗ ${plural(waiting, "row")} waiting`] : ["ok", `✓ ${plural(waiting, "row")} in work`], oldest ? ["oldest ", when(oldest)] : ""],
        ["Answer", took > 1000 ? ["stale", `◷ ${took} ms`] : ["ok", `✓ ${took} ms`]],
      ];
      put(root, h("h1", null, "Status"),
        h("ol", { class: "hops" }, hops.map(([name, [kind, word], more]) => h("li", { class: kind }, h("b", null, name), h("span", { class: `state ${kind}` }, word), more ? h("small", null, more) : null))),
        h("section", { class: "panel" }, h("h2", null, "1. Collect"), h("p", { class: "muted" }, "Sources to Kafka. Metrics: spillway_collect_*"), sourceTable(st.sources)),
        h("section", { class: "panel" }, h("h2", null, "2. Kafka"), h("p", { class: "muted" }, "What the contract refused in the last day. Metrics: spillway_kafka_*"),
          st.dead_letters.length === 0 ? box("empty", "Nothing was refused.") : table("Refused records", [
            { head: "Topic", cell: (x) => x.topic }, { head: "At", cell: (x) => x.stage }, { head: "Reason", cell: (x) => x.reason }, { head: "Records", number: true, cell: (x) => figure(x.records) }, { head: "Newest", cell: (x) => when(x.newest) }], st.dead_letters)),
        h("section", { class: "panel" }, h("h2", null, "3. Load"), h("p", { class: "muted" }, "Kafka to ClickHouse. Metrics: spillway_load_*"), table("Raw tables", [
          { head: "Table", cell: (x) => x.table }, { head: "Rows", number: true, cell: (x) => figure(x.rows) }, { head: "Newest row", cell: (x) => (x.loaded_at ? when(x.loaded_at) : h("span", { class: "muted" }, "none yet")) }], st.raw_tables)),
        h("section", { class: "panel" }, h("h2", null, "4. Judge"), h("p", { class: "muted" }, "Raw rows to verdicts. Metrics: spillway_enrich_*"), st.unjudged.length === 0 ? box("empty", "Nothing waits to be judged.") : table("Rows that wait", [
          { head: "Table", cell: (x) => x.table }, { head: "Rows", number: true, cell: (x) => figure(x.rows) }, { head: "Oldest", cell: (x) => when(x.oldest_loaded_at) }], st.unjudged)),
        h("p", { class: "muted" }, h("a", { href: "/metrics" }, "All metrics"), " for Prometheus; ", h("a", { href: "/openapi.yaml", target: "_blank", rel: "noopener" }, "the API's description"), "."));
      return st;
    },
  };
}
