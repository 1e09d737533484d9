package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/query/read"
)

func sampleReport() *read.Report {
	n := func(v uint32) *uint32 { return &v }
	f := func(v float64) *float64 { return &v }
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	return &read.Report{
		Since: at.Add(-7 * 24 * time.Hour), Until: at,
		Total: read.ReportUse{Placements: 40, Spilled: 3, Unknown: 1, GPUHours: 1000, ExposedGPUHours: 200, UnmeasuredGPUHours: 200, UnknownGPUHours: 8},
		Accounts: []read.ReportAccount{{Cluster: "alpha", Account: "<b>ml</b>", StrandedGPUHours: 50,
			ReportUse: read.ReportUse{Placements: 40, Spilled: 3, GPUHours: 1000, ExposedGPUHours: 200, UnmeasuredGPUHours: 200}}},
		Causes:  []read.ReportCause{{Cause: textp("policy"), Placements: 2, ExposedGPUHours: 150}, {Placements: 1, ExposedGPUHours: 50}},
		Worst:   []read.ReportJob{{Cluster: "alpha", JobID: "7", Name: "<script>alert(1)</script>", GPUs: n(64), DomainsUsed: n(2), ExposedGPUHours: f(150)}},
		Changes: []string{"policy, 75 % of the exposed GPU-hours: place by topology."}, Basis: []string{"No basis: unknown, not zero."},
		Stranded: read.Stranded{SlotGPUs: 64, StrandedGPUHours: 50, FreeGPUHours: 100},
	}
}

func TestReportNeverTakesUnknownForZero(t *testing.T) {
	var text, page bytes.Buffer
	printReport(&text, sampleReport())
	if err := printReportHTML(&page, sampleReport()); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{"text": text.String(), "html": page.String()} {
		for _, want := range []string{"unknown: no traffic", "unknown, not zero", "policy", "place by topology", "20 %", "2026-11-22 12:00Z"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, got)
			}
		}
	}
	for _, want := range []string{"<script>", "<b>ml", "src=", "http"} {
		if strings.Contains(page.String(), want) {
			t.Errorf("the page holds %q: names must be text and nothing may come from elsewhere", want)
		}
	}
	for _, line := range strings.Split(text.String(), "\n") {
		if len([]rune(line)) > maxWidth {
			t.Errorf("a line is %d wide: %s", len(line), line)
		}
	}
	least, most := 0.0, 12.0
	r := sampleReport()
	r.Total.LostLeast, r.Total.LostMost, r.Total.UnmeasuredGPUHours = &least, &most, 20
	text.Reset()
	printReport(&text, r)
	if want := "0 to 12 GPU-hours where traffic was measured; unknown for 20 exposed"; !strings.Contains(text.String(), want) {
		t.Errorf("want %q in\n%s", want, text.String())
	}
	empty := &read.Report{}
	text.Reset()
	printReport(&text, empty)
	if !strings.Contains(text.String(), "nothing spilled") {
		t.Errorf("an empty report: got\n%s", text.String())
	}
}
