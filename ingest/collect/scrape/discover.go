package scrape

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// discovery finds the targets. It keeps the last good list of every file and name, so that one that fails, or is being
// written, takes no target away.
type discovery struct {
	cfg      *Config
	resolver *net.Resolver
	known    map[string][]Group // by file, or by type and name
	watches  []*kubeWatch       // these remember by themselves
}

// find reads everything again. The targets are those of all that could be read now or before; each URL stands once.
func (d *discovery) find(ctx context.Context) ([]Target, error) {
	var errs []error
	lists := map[string]bool{}
	for _, pattern := range d.cfg.Files {
		paths, err := filepath.Glob(pattern)
		if err == nil && len(paths) == 0 {
			err = fmt.Errorf("find %s: there is no such file", pattern)
		}
		if err != nil {
			errs = append(errs, err)
			paths = slices.DeleteFunc(slices.Collect(maps.Keys(d.known)), func(path string) bool {
				matches, _ := filepath.Match(pattern, path)
				return !matches
			})
			for _, path := range paths {
				lists[path] = true // all files gone at once is a file system gone, not a fleet
			}
			continue
		}
		for _, path := range paths {
			lists[path] = true
			groups, err := readFile(path)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			d.known[path] = groups
		}
	}
	for _, dns := range d.cfg.DNS {
		for _, name := range dns.Names {
			list := dns.Type + " " + name
			lists[list] = true
			group, err := d.lookup(ctx, dns.Type, name)
			if err != nil {
				errs = append(errs, fmt.Errorf("look up %s records of %s: %w", dns.Type, name, err))
				continue
			}
			d.known[list] = []Group{group}
		}
	}
	maps.DeleteFunc(d.known, func(list string, _ []Group) bool { return !lists[list] })

	groups := slices.Clone(d.cfg.Targets)
	for _, w := range d.watches {
		found, err := w.groups()
		if err != nil {
			errs = append(errs, err)
		}
		groups = append(groups, found...)
	}
	for _, list := range slices.Sorted(maps.Keys(d.known)) {
		groups = append(groups, d.known[list]...)
	}
	var targets []Target
	seen := map[string]bool{}
	for _, g := range groups {
		for _, address := range g.Targets {
			t, err := d.cfg.target(address, g.Labels)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if !seen[t.URL] {
				seen[t.URL] = true
				targets = append(targets, t)
			}
		}
	}
	return targets, errors.Join(errs...)
}

// readFile reads one list of targets. An empty file is one that is being written; an empty list is [].
func readFile(path string) ([]Group, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read targets: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, fmt.Errorf("read targets: %s is empty; write [] for no target", path)
	}
	var groups []Group
	if filepath.Ext(path) == ".json" {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err = dec.Decode(&groups); err == nil && dec.More() {
			err = errors.New("something follows the list")
		}
	} else {
		err = yaml.UnmarshalWithOptions(text, &groups, yaml.Strict())
	}
	if err != nil {
		return nil, fmt.Errorf("read targets of %s: %w; write a list of {targets: [address], labels: {name: value}}", path, err)
	}
	return groups, nil
}

func (d *discovery) lookup(ctx context.Context, kind, name string) (Group, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	var g Group
	if kind == "SRV" {
		_, records, err := d.resolver.LookupSRV(ctx, "", "", name)
		if err != nil {
			return g, err
		}
		for _, r := range records {
			host := strings.TrimSuffix(r.Target, ".")
			g.Targets = append(g.Targets, net.JoinHostPort(host, strconv.Itoa(int(r.Port))))
		}
		return g, nil
	}
	network := map[string]string{"A": "ip4", "AAAA": "ip6"}[kind]
	addresses, err := d.resolver.LookupNetIP(ctx, network, name)
	if err != nil {
		return g, err
	}
	for _, a := range addresses {
		g.Targets = append(g.Targets, net.JoinHostPort(a.Unmap().String(), strconv.Itoa(d.cfg.Port)))
	}
	return g, nil
}
