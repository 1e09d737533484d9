package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-io/spillway/query/read"
)

// maxWidth is the widest line a table prints.
const maxWidth = 100

// table prints rows in aligned columns that fit maxWidth: the widest column gives way first.
type table struct {
	head []string
	rows [][]string
}

// add adds a row. Names in it come from whoever submits.
func (t *table) add(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	t.rows = append(t.rows, cells)
}

func (t *table) print(w io.Writer) {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for {
		total, widest := 2*(len(width)-1), 0
		for i, n := range width {
			total += n
			if n > width[widest] {
				widest = i
			}
		}
		if total <= maxWidth || width[widest] <= 8 {
			break
		}
		width[widest]--
	}
	for _, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			cell = clip(cell, width[i])
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// clip shortens a cell and shows that it did.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// The cells of unknown values: never a zero.
const unknown = "?"

func cellUint(n *uint32) string {
	if n == nil {
		return unknown
	}
	return strconv.FormatUint(uint64(*n), 10)
}

func cellTime(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return t.Local().Format("01-02 15:04:05")
}

func cellShape(shape []read.Shard) string {
	parts := make([]string, len(shape))
	for i, s := range shape {
		parts[i] = cellUint(s.GPUs)
	}
	return strings.Join(parts, "+")
}

// footer says how old and complete an answer is, under every table.
func footer(w io.Writer, d read.Freshness) {
	if d.AgeS == nil {
		fmt.Fprintln(w, "\nage of these facts: unknown")
	} else {
		fmt.Fprintf(w, "\nfacts are %s old\n", (time.Duration(*d.AgeS * float64(time.Second))).Round(time.Second))
	}
	for _, gap := range d.Gaps {
		fmt.Fprintln(w, "missing:", printable(gap))
	}
}
