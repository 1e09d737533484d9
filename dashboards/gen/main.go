// Command gen writes the Grafana boards as JSON: go run . DIR. What it writes is committed, and a test of the main module
// writes it again and compares. The boards are read by people; it never asks a data source itself.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "gen: name the directory to write the boards to")
		os.Exit(2)
	}
	for _, board := range []*dashboard.DashboardBuilder{fleet(), spills(), job(), domain(), capacity(), topology(), advice(), pipeline()} {
		if err := write(os.Args[1], board); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
	}
}

func write(dir string, builder *dashboard.DashboardBuilder) error {
	board, err := builder.Build()
	if err != nil {
		return fmt.Errorf("build a board: %w", err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(board); err != nil {
		return fmt.Errorf("encode %s: %w", *board.Uid, err)
	}
	if err := os.WriteFile(filepath.Join(dir, *board.Uid+".json"), out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", *board.Uid, err)
	}
	return nil
}
