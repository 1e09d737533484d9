package main

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The data sources have fixed uids, see deploy/grafana.
var (
	clickhouseRef = common.DataSourceRef{Type: cog.ToPtr("grafana-clickhouse-datasource"), Uid: cog.ToPtr("spillway-clickhouse")}
	prometheusRef = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("spillway-prometheus")}
)

// unknown is what a null shows as: it is never zero.
const unknown = "unknown"

// board begins a board: the same look, variable and links everywhere. The SDK calls this builder deprecated in favour of
// dashboardv2, whose boards are resources of another format; these are the JSON that file provisioning reads.
func board(uid, title, about string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).Uid(uid).Description(about).Tags([]string{"spillway"}).Readonly().
		Time("now-24h", "now").Timezone("utc").Refresh("30s").Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("Spillway boards").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{"spillway"}).AsDropdown(true).IncludeVars(true).KeepTime(true)).
		WithVariable(variable("cluster", "Cluster", "SELECT DISTINCT cluster FROM membership WHERE cluster != 'spillway-probe' ORDER BY cluster").
			Multi(true).IncludeAll(true).Current(all))
}

var all = dashboard.VariableOption{
	Selected: cog.ToPtr(true), Text: dashboard.StringOrArrayOfString{String: cog.ToPtr("All")},
	Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")},
}

func variable(name, label, sql string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(clickhouseRef).
		Query(dashboard.StringOrMap{String: cog.ToPtr(expand(sql))}).Refresh(dashboard.VariableRefreshOnTimeRangeChanged)
}

// expand puts the parts that several queries share in their place.
func expand(sql string) string {
	parts := strings.NewReplacer("@capacity_now", capacityNow, "@labels", labels, "@held", held, "@runs", runs, "@startedRuns", startedRuns, "@verdicts", verdicts)
	return strings.TrimSpace(strings.ReplaceAll(parts.Replace(sql), "@clusters", clusters))
}

// query is one statement as the ClickHouse data source wants it: a table, or a time series with a column named time.
func query(sql, kind string) cog.Builder[variants.Dataquery] {
	format := 1
	if kind == "timeseries" {
		format = 0
	}
	return variants.NewUnknownDataqueryBuilderFromObject(variants.UnknownDataquery{
		"datasource": clickhouseRef, "editorType": "sql", "queryType": kind, "format": format, "pluginVersion": "4.20.0",
		"rawSql": expand(sql), "refId": "A",
	})
}

func lines(title, about, unit, sql string) *timeseries.PanelBuilder {
	return timeseries.NewPanelBuilder().Title(title).Description(about).Datasource(clickhouseRef).Unit(unit).Min(0).
		NoValue(unknown).LineInterpolation(common.LineInterpolationStepAfter).FillOpacity(10).Height(8).Span(12).
		Legend(legend()).WithTarget(query(sql, "timeseries"))
}

func legend() *common.VizLegendOptionsBuilder {
	return common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)
}

func stacked() *common.StackingConfigBuilder {
	return common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A")
}

func rows(title, about, sql string) *table.PanelBuilder {
	return table.NewPanelBuilder().Title(title).Description(about).Datasource(clickhouseRef).NoValue(unknown).
		Filterable(true).Height(10).Span(24).WithTarget(query(sql, "table"))
}

func numbers(title, about, sql string) *stat.PanelBuilder {
	return stat.NewPanelBuilder().Title(title).Description(about).Datasource(clickhouseRef).NoValue(unknown).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Values(false).Fields("/.*/")).
		ColorMode(common.BigValueColorModeNone).GraphMode(common.BigValueGraphModeNone).Height(4).Span(24).WithTarget(query(sql, "table"))
}

func bars(title, about, unit, x, sql string) *barchart.PanelBuilder {
	return barchart.NewPanelBuilder().Title(title).Description(about).Datasource(clickhouseRef).NoValue(unknown).Unit(unit).
		XField(x).Min(0).Height(8).Span(12).WithTarget(query(sql, "table"))
}

// promLines shows expressions, each with what its lines are called.
func promLines(title, about, unit string, exprs ...string) *timeseries.PanelBuilder {
	p := timeseries.NewPanelBuilder().Title(title).Description(about).Datasource(prometheusRef).Unit(unit).Min(0).
		NoValue("no data").Height(8).Span(12).Legend(legend())
	for i := 0; i < len(exprs); i += 2 {
		p = p.WithTarget(prometheus.NewDataqueryBuilder().Expr(exprs[i]).LegendFormat(exprs[i+1]).Range().RefId(string(rune('A' + i/2))).Datasource(prometheusRef))
	}
	return p
}

// link turns the cells of a column into a link to another board or to the page.
func link(title, url string) []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{{Id: "links", Value: []map[string]any{{"title": title, "url": url}}}}
}

const (
	toJob    = "/d/spillway-job?var-cluster=${__data.fields.cluster}&var-job=${__value.raw}&${__url_time_range}"
	toDomain = "/d/spillway-domain?var-cluster=${__data.fields.cluster}&var-domain=${__data.fields.domain}&${__url_time_range}"
)

// coloured colours cells by thresholds given as value, colour pairs; the first colour is for what is below.
func coloured(below string, steps ...any) []dashboard.DynamicConfigValue {
	list := []map[string]any{{"value": nil, "color": below}}
	for i := 0; i < len(steps); i += 2 {
		list = append(list, map[string]any{"value": steps[i], "color": steps[i+1]})
	}
	return []dashboard.DynamicConfigValue{
		{Id: "custom.cellOptions", Value: map[string]any{"type": "color-background", "mode": "basic"}},
		{Id: "color", Value: map[string]any{"mode": "thresholds"}},
		{Id: "thresholds", Value: map[string]any{"mode": "absolute", "steps": list}},
	}
}

// worded colours cells by their text. The colours are told apart by the colour-blind too, and the text stays.
func worded() []dashboard.DynamicConfigValue {
	options, i := map[string]any{}, 0
	for _, pair := range [][2]string{
		{"one_partition", "#0072B2"}, {"one_domain", "#56B4E9"}, {"minimal_spread", "#009E73"}, {"spill", "#D55E00"}, {unknown, "#999999"},
		{"policy", "#D55E00"}, {"timing", "#E69F00"}, {"repack", "#CC79A7"}, {"capacity", "#F0E442"},
		{"silent_fallback", "#D55E00"},
	} {
		options[pair[0]] = map[string]any{"text": pair[0], "color": pair[1], "index": i}
		i++
	}
	return []dashboard.DynamicConfigValue{
		{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}},
		{Id: "mappings", Value: []map[string]any{{"type": "value", "options": options}}},
	}
}

func unit(name string) []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{{Id: "unit", Value: name}}
}

func annotation(name, colour, sql string) *dashboard.AnnotationQueryBuilder {
	return dashboard.NewAnnotationQueryBuilder().Name(name).Datasource(clickhouseRef).Enable(true).IconColor(colour).
		Target(query(sql, "table"))
}

// nodeEvents are nodes that lost or regained GPUs or were drained.
func nodeEvents() *dashboard.AnnotationQueryBuilder {
	return annotation("Node events", "#E69F00", `
SELECT valid_from AS time, concat(cluster, '/', node) AS title,
       concat(if(gpus_usable IS NULL, 'usable GPUs not known', concat(toString(gpus_usable), ' of ', ifNull(toString(gpus_present), '?'), ' GPUs usable')),
              if(state_raw != '', concat(', ', state_raw), ''), if(reason != '', concat(': ', reason), '')) AS text,
       'node' AS tags
FROM (SELECT * FROM node_states WHERE $__timeFilter(valid_from) AND @clusters ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
WHERE is_deleted = 0 AND (gpus_usable IS NULL OR gpus_usable < gpus_present)
ORDER BY time LIMIT 500`)
}

// domainChanges are nodes whose NVLink domain is another than before.
func domainChanges() *dashboard.AnnotationQueryBuilder {
	return annotation("Domain changes", "#CC79A7", `
SELECT time, title, text, 'domain' AS tags
FROM
(
    SELECT cluster, node, valid_from AS time, concat(cluster, '/', node) AS title,
           concat(if(domain = '', concat('domain unknown: ', reason), concat('now in ', domain)), if(before = '', '', concat(', before in ', before))) AS text,
           lagInFrame(domain) OVER w AS before, row_number() OVER w AS nth
    FROM (SELECT * FROM membership WHERE @clusters ORDER BY version DESC LIMIT 1 BY cluster, node, valid_from)
    WHERE is_deleted = 0
    WINDOW w AS (PARTITION BY cluster, node ORDER BY valid_from ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
)
WHERE nth > 1 AND $__timeFilter(time)
ORDER BY time LIMIT 500`)
}
