package main

import (
	"strings"
	"testing"
	"time"
)

func TestHowFarBackIsReadStrictly(t *testing.T) {
	for given, want := range map[string]time.Duration{
		"90m": 90 * time.Minute, "24h": 24 * time.Hour, "7d": 168 * time.Hour, "1.5d": 36 * time.Hour, "1h30m": 90 * time.Minute,
		"-7d": 0, "0d": 0, "-0d": 0, "5d3d": 0, "5d3h": 0, "d": 0, " 7d": 0, "7 d": 0, "nand": 0, "infd": 0, "1e300d": 0, "40000d": 0,
		"-1h": 0, "0s": 0, "": 0, "7": 0, "week": 0,
	} {
		got, err := parseBack(given)
		if want == 0 {
			if err == nil || !strings.Contains(err.Error(), "write a duration such as") {
				t.Errorf("%q: got %s %v, want a refusal that says how it is written", given, got, err)
			}
		} else if err != nil || got != want {
			t.Errorf("%q: got %s %v, want %s", given, got, err, want)
		}
	}
}
