package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// Dump writes settings as Load reads them: every key with its value in effect, defaults included. There is no secret in
// it, for there is none in the settings.
func Dump(cfg any) (string, error) {
	out, err := yaml.MarshalWithOptions(cfg, yaml.IndentSequence(true), yaml.CustomMarshaler(func(d time.Duration) ([]byte, error) {
		return []byte(short(d)), nil
	}))
	if err != nil {
		return "", fmt.Errorf("dump configuration: %w", err)
	}
	return string(out), nil
}

// short prints a duration without the units that are zero at its end: 15m, not 15m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
